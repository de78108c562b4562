"""Lint: rules for a schema before anything depends on it.

Compatibility finds changes that break readers. Lint finds later regrets: a field without a doc, a
name that a table cannot have, an event without an event time. Rule: a file is linted for its own
definitions only; types of other files are linted there.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from datetime import UTC, date, datetime
from pathlib import Path

from headworks._ci.catalog import SchemaCatalog, SchemaFile, read_folder, within
from headworks._ci.governance import GovernanceFile, catalog_root, no_schema_files, read_governance
from headworks._ci.locations import locate, refusal
from headworks._ci.rules import LINT_RULES
from headworks._ci.verdict import SubjectVerdict, Verdict
from headworks.compatibility import Finding, Policy
from headworks.compatibility._hive import column_problems
from headworks.schema import governance_of, topic_of
from headworks.schema._model import EnumType, Field, Record, Schema, Union, named_types

_UPPER_CAMEL = re.compile(r"[A-Z][A-Za-z0-9]*\Z")
_LOWER_SNAKE = re.compile(r"[a-z][a-z0-9_]*\Z")
_UPPER_SNAKE = re.compile(r"[A-Z][A-Z0-9_]*\Z")
# Reserved in Hive 2.3, where a column of that name must be quoted in every query.
_RESERVED = frozenset(
    """all alter and array as authorization between bigint binary boolean both by cache case cast
    char column commit conf constraint create cross cube current current_date current_timestamp
    cursor database date dayofweek decimal delete describe distinct double drop else end exchange
    exists extended external extract false fetch float floor following for foreign from full
    function grant group grouping having if import in inner insert int integer intersect interval
    into is join lateral left less like local macro map more none not null numeric of on only or
    order out outer over partialscan partition percent preceding precision preserve primary
    procedure range reads reduce references regexp revoke right rlike rollback rollup row rows
    select set smallint start table tablesample then time timestamp to transform trigger true
    truncate unbounded union uniquejoin update user using utc_tmestamp values varchar views when
    where window with""".split()  # noqa: SIM905
)


def lint_catalog(
    schemas: Path | Sequence[Path], *, today: date | None = None, home: Path | None = None
) -> Verdict:
    """Lint every file of `schemas`, folders or files of one catalog (`home`: see `check`)."""
    paths = [schemas] if isinstance(schemas, Path) else list(schemas)
    root = catalog_root(*paths, home=home)
    governance = read_governance(root)
    catalog = SchemaCatalog(read_folder(root), governance.mapped(root.as_posix()))
    files = [one for one in catalog.files() if within(one.path, paths)]
    if not files:
        raise no_schema_files(paths)
    day = today or datetime.now(tz=UTC).date()
    return Verdict(tuple(lint_file(one, catalog, governance, day) for one in files))


def lint_file(
    one: SchemaFile, catalog: SchemaCatalog, governance: GovernanceFile, day: date
) -> SubjectVerdict:
    """Return the findings of one file of a catalog."""
    if one.error is not None:
        return SubjectVerdict(None, one.path, (locate(one, refusal(one), texts=catalog),))
    assert one.schema is not None
    found = [_repeated(one, pointer) for pointer in catalog.source(one.path).repeated()]
    found += list(lint(one.schema, event=_is_event(one.subject), home=f"{one.path}#"))
    demand = governance.of(one.subject or "")
    if one.subject is not None and demand.policy is Policy.WAREHOUSE:
        found += [_no_column(problem) for problem in column_problems(one.schema)]
    located = tuple(
        locate(one, finding, texts=catalog, waiver=demand.waiver(finding, day)) for finding in found
    )
    return SubjectVerdict(one.subject, one.path, located)


def _is_event(subject: str | None) -> bool:
    """Return whether a subject is for the values of a topic; keys, for example, have no time."""
    return subject is not None and topic_of(subject) is not None


def _repeated(one: SchemaFile, pointer: str) -> Finding:
    name = pointer.rpartition("/")[2]
    message = f"{name!r} is written twice in one object, and only the last one counts"
    return _finding("HW412", message, f"{one.path}#{pointer}", "remove one of them")


def lint(schema: Schema, *, event: bool = True, home: str = "") -> Iterator[Finding]:
    """Yield the findings of one schema; `home` is the prefix of its own definitions' pointers."""
    branches = schema.branches if isinstance(schema, Union) else (schema,)
    for branch in branches if event else ():
        if isinstance(branch, Record):
            yield from _event(branch)
            if branch is schema and _is_empty(branch):  # in a union, the branch takes a byte
                message = f"the record {branch.name!r} encodes to no bytes, and consumers refuse "
                message += "a message without any"
                yield _finding("HW409", message, branch.pointer, "add a field")
    for node in named_types(schema):
        if not node.pointer.startswith(home):
            continue
        simple = node.name.rpartition(".")[2]
        if not _UPPER_CAMEL.match(simple):
            yield _finding("HW402", f"the type {simple!r} is not UpperCamel", node.pointer)
        if isinstance(node, EnumType):
            yield from _enum(node)
        elif isinstance(node, Record):
            yield from _record(node)


def _event(schema: Record) -> Iterator[Finding]:
    if "." not in schema.name:
        message = f"the record {schema.name!r} has no namespace, and shares its name with every "
        message += "other such type"
        yield _finding("HW405", message, schema.pointer, 'add "namespace"')
    if governance_of(schema).event_time is None:
        message = f"the record {schema.name!r} has no event time: tables and the audit use the "
        message += "time of sending"
        fix = 'add "headworks": {"event_time": "FIELD"}, naming a timestamp-millis field'
        yield _finding("HW406", message, schema.pointer, fix)


def _enum(node: EnumType) -> Iterator[Finding]:
    if not node.doc:
        yield _undocumented("enum", node.name, node.pointer)
    for i, symbol in enumerate(node.symbols):
        if not _UPPER_SNAKE.match(symbol):
            message = f"the symbol {symbol!r} is not UPPER_SNAKE"
            yield _finding("HW402", message, f"{node.pointer}/symbols/{i}")


def _record(node: Record) -> Iterator[Finding]:
    if not node.doc:
        yield _undocumented("record", node.name, node.pointer)
    if _needs_itself(node):
        message = f"a {node.name} always holds another one: no value of it can exist"
        yield _finding("HW410", message, node.pointer, "make the inner one nullable, or an array")
    cases: dict[str, str] = {}
    for one in node.fields:
        other = cases.setdefault(one.name.lower(), one.name)
        if other != one.name:
            message = f"the fields {other!r} and {one.name!r} differ in case only"
            yield _finding("HW408", message, one.pointer, "give one of them another name", one.name)
        yield from _field(one)


def _field(one: Field) -> Iterator[Finding]:
    if not one.doc:
        yield _undocumented("field", one.name, one.pointer)
    if not _LOWER_SNAKE.match(one.name):
        message = f"the field {one.name!r} is not lower_snake"
        yield _finding("HW402", message, f"{one.pointer}/name", path=one.name)
    if one.name.lower() in _RESERVED:
        message = f"{one.name!r} is a reserved word of Hive: every query must quote the column"
        yield _finding("HW407", message, f"{one.pointer}/name", "choose another name", one.name)
    if not isinstance(one.type, Union):
        return
    kinds = [branch.kind for branch in one.type.branches]
    if "null" not in kinds:
        return
    if not one.has_default:
        message = f"{one.name!r} allows null and has no default: it cannot be added or left out "
        message += "later"
        yield _finding("HW403", message, one.pointer, 'add "default": null', one.name)
    if kinds[0] != "null" and (not one.has_default or one.default is None):
        message = f"null is not the first branch of {one.name!r}, and many readers take a default "
        message += "for the first branch only"
        fix = 'write ["null", ...]'
        yield _finding("HW404", message, f"{one.pointer}/type", fix, one.name)


def _undocumented(kind: str, name: str, pointer: str) -> Finding:
    message = f"the {kind} {name!r} has no doc"
    return _finding("HW401", message, pointer, 'add "doc"', name if kind == "field" else "")


def _finding(
    rule: str, message: str, pointer: str, fix: str = "rename it", path: str = ""
) -> Finding:
    text = message[:1].upper() + message[1:]
    return Finding(rule, LINT_RULES[rule][0], text, fix, path, pointer, "")


def _no_column(problem: Finding) -> Finding:
    kind = LINT_RULES["HW411"][0]
    return Finding(
        "HW411", kind, problem.message, problem.fix, problem.path, problem.reader_pointer, ""
    )


def _is_empty(schema: Schema) -> bool:
    """Return whether every value of the type encodes to no bytes."""
    seen: set[int] = set()
    stack: list[Schema] = [schema]
    while stack:
        node = stack.pop()
        if isinstance(node, Record):
            if id(node) not in seen:
                seen.add(id(node))
                stack += [one.type for one in node.fields]
        elif node.kind != "null":
            return False
    return True


def _needs_itself(record: Record) -> bool:
    """Return whether a value of the record always contains another one."""
    seen: set[int] = set()
    stack: list[Schema] = [one.type for one in record.fields]
    while stack:
        node = stack.pop()
        if node is record:
            return True
        if isinstance(node, Record) and id(node) not in seen:
            seen.add(id(node))
            stack += [one.type for one in node.fields]
    return False
