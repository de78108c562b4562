"""A subject: its fields with their docs, its versions, and the changes between two of them."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from itertools import islice

from headworks._audit.usage import SubjectUsage
from headworks._ci.verdict import DownstreamConsumer
from headworks._console.sources.field_paths import dotted_paths, walk_fields
from headworks._console.sources.subjects import SubjectsSnapshot
from headworks._console.views.paging import ListQuery, list_page
from headworks._console.views.version_users import VersionUsers, version_users
from headworks._console.views.visibility import CanSee
from headworks.compatibility._wording import has_path
from headworks.errors import HeadworksError
from headworks.registry_client import Compatibility, SubjectVersion
from headworks.schema import (
    Array,
    EnumType,
    Fixed,
    MapType,
    Primitive,
    Record,
    Schema,
    Union,
    governance_of,
    parse,
    topic_of,
)
from headworks.schema._difference import Difference, differences
from headworks.schema._json_text import indented
from headworks.schema._sensitive import sensitive_paths

_MAX_FIELDS = 2_000
_MAX_VERSIONS = 200
_CHANGE_TEXTS = {
    "added": "added",
    "removed": "removed",
    "renamed": "renamed by an alias",
    "type": "another type",
    "name": "the type's name",
    "default": "default",
    "doc": "doc",
    "symbols": "symbols",
    "size": "size",
    "aliases": "aliases",
    "properties": "properties",
}


@dataclass(frozen=True, slots=True)
class SubjectLine:
    """A subject in the list; `found` are its fields that match the search."""

    subject: str
    topic: str | None
    version: int
    registered_ms: int | None
    type_name: str | None
    fields: int
    owner: str | None
    doc: str | None
    sensitive: bool
    problem: str | None
    found: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class SubjectList:
    """One page of the list of subjects; `hidden` if there are some that the reader may not see."""

    rows: tuple[SubjectLine, ...]
    total: int
    page: int
    pages: int
    q: str
    sort: str
    hidden: bool


def subject_list(
    subjects: SubjectsSnapshot | None, can_see: CanSee, query: ListQuery
) -> SubjectList:
    """Return the requested page of the list of subjects; those of Headworks itself come last."""
    every = list(subjects.rows.values()) if subjects else []
    rows = [row for row in every if can_see.subject(row.subject)]
    newest = query.sort == "newest"
    part = list_page(
        rows,
        query,
        lambda row: " ".join(
            (row.subject, row.type_name or "", row.owner or "", row.doc or "", *row.paths)
        ),
        (lambda row: -(row.registered_ms or 0))
        if newest
        else (lambda row: (row.subject.startswith("headworks."), row.subject)),
    )
    words = query.q.lower().split()
    lines = tuple(
        SubjectLine(
            row.subject,
            row.topic,
            row.version,
            row.registered_ms,
            row.type_name,
            row.fields,
            row.owner,
            row.doc,
            row.sensitive,
            row.problem,
            tuple(path for path in row.paths if any(word in path.lower() for word in words)),
        )
        for row in part.rows
    )
    return SubjectList(
        lines, part.total, part.page, part.pages, part.q, part.sort, len(rows) < len(every)
    )


@dataclass(frozen=True, slots=True)
class FieldLine:
    """A field by its dotted path; `since` is the first of the versions in a row that have it."""

    path: str
    depth: int
    type: str
    optional: bool
    default: str | None
    doc: str | None
    role: str | None
    sensitive: bool
    since: int | None


@dataclass(frozen=True, slots=True)
class VersionLine:
    """A version in the list; `changes` counts its changes to the version before.

    `writers` and `readers` count the programs that use it (None: nobody knows). `deprecated` is the
    reason, or "" for a version that is not.
    """

    version: int
    schema_id: int
    registered_ms: int | None
    changes: int | None
    writers: int | None
    readers: int | None
    deprecated: str


@dataclass(frozen=True, slots=True)
class SchemaChange:
    """One change in words; `kind`: added, removed, or changed."""

    kind: str
    path: str
    what: str
    before: str | None
    after: str | None


@dataclass(frozen=True, slots=True)
class SchemaPage:
    """Everything that the page of a subject shows. `users` is None if no audit is known."""

    subject: str
    topic: str | None
    version: int
    schema_id: int
    before: int | None
    type_name: str | None
    doc: str | None
    owner: str | None
    level: str
    policy: str
    versions: tuple[VersionLine, ...]
    fields: tuple[FieldLine, ...]
    changes: tuple[SchemaChange, ...]
    diff: tuple[str, ...]
    text: str
    consumers: tuple[DownstreamConsumer, ...]
    hidden_consumers: bool
    producers: tuple[str, ...]
    problem: str | None
    deprecated: str
    users: VersionUsers | None


def schema_page(
    history: Sequence[SubjectVersion],
    texts: Mapping[int, str],
    compatibility: Compatibility,
    *,
    version: int,
    before: int | None,
    consumers: Sequence[DownstreamConsumer],
    hidden_consumers: bool,
    producers: Sequence[str],
    usage: SubjectUsage | None,
    deprecated: Mapping[int, str],
) -> SchemaPage:
    """Return the page of a subject. `history` is oldest first; `texts` are complete schemas by
    version. `usage` is None if no audit is known.
    """
    shown, problem = _parsed(texts[version])
    record = shown if isinstance(shown, Record) else None
    recent = history[-_MAX_VERSIONS:]
    parsed = {one.version: _parsed(texts[one.version])[0] for one in recent}
    old = parsed.get(before) if before is not None else None
    compared = old is not None and shown is not None
    subject = history[0].subject
    return SchemaPage(
        subject,
        topic_of(subject),
        version,
        next(one.id for one in history if one.version == version),
        before,
        record.name if record else None,
        record.doc if record else None,
        _owner(record),
        str(compatibility.level),
        str(compatibility.policy),
        tuple(_version_lines(recent, parsed, usage, deprecated)),
        tuple(field_lines(shown, {v: one for v, one in parsed.items() if v <= version})),
        tuple(changes_between(old, shown)) if compared and old and shown else (),
        tuple(text_diff(texts[before], texts[version])) if before is not None else (),
        indented(texts[version]),
        tuple(consumers),
        hidden_consumers,
        tuple(producers),
        problem,
        deprecated.get(version, ""),
        version_users(usage, version),
    )


def text_diff(old: str, new: str) -> Iterator[str]:
    """Yield the lines that differ, with three lines of context."""
    lines = difflib.unified_diff(
        indented(old).splitlines(), indented(new).splitlines(), lineterm=""
    )
    for number, line in enumerate(lines):
        if number > 1:  # the two lines that name files
            yield line


def changes_between(old: Schema, new: Schema) -> Iterator[SchemaChange]:
    """Yield the changes field by field, in words."""
    for one in differences(old, new):
        yield _change(one)


def _change(one: Difference) -> SchemaChange:
    kind = one.what if one.what in ("added", "removed") else "changed"
    return SchemaChange(kind, one.path, _CHANGE_TEXTS[one.what], one.before, one.after)


def _parsed(text: str) -> tuple[Schema | None, str | None]:
    try:
        return parse(text, strict=False), None
    except HeadworksError as error:
        return None, error.message


def _owner(record: Record | None) -> str | None:
    try:
        return governance_of(record).owner if record else None
    except HeadworksError:
        return None


def _version_lines(
    history: Sequence[SubjectVersion],
    parsed: Mapping[int, Schema | None],
    usage: SubjectUsage | None,
    deprecated: Mapping[int, str],
) -> Iterator[VersionLine]:
    last: Schema | None = None
    lines = []
    used = {one.version: one for one in usage.versions} if usage and usage.since else {}
    for one in history:
        schema = parsed[one.version]
        count = len(differences(last, schema)) if last is not None and schema is not None else None
        users = used.get(one.version)
        lines.append(
            VersionLine(
                one.version,
                one.id,
                one.registered_ms,
                count,
                len(users.written_by) if users else None,
                len(users.read_by) if users else None,
                deprecated.get(one.version, ""),
            )
        )
        last = schema
    yield from reversed(lines)


def field_lines(schema: Schema | None, history: Mapping[int, Schema | None]) -> Iterator[FieldLine]:
    """Yield the fields of a schema in order, with those of nested records below their own.

    `history` are the versions up to this one, by number.
    """
    if not isinstance(schema, Record):
        return
    roles = _roles(schema)
    fields = [*islice(walk_fields(schema, (), 0, (schema,)), _MAX_FIELDS)]
    since = _since({_as_text(path) for path, *_ in fields}, history)
    masks = sensitive_paths(schema)
    for path, depth, node, default, doc in fields:
        inner = node.nullable if isinstance(node, Union) else None
        yield FieldLine(
            _as_text(path),
            depth,
            type_text(inner or node),
            inner is not None,
            default,
            doc,
            roles.get(".".join(path)),
            any(path[:steps] in masks for steps in range(len(path) + 1)),
            since.get(_as_text(path)),
        )


def field_paths(text: str) -> tuple[str, ...]:
    """Return the dotted field paths for a filter, without steps for lists and maps."""
    schema, _ = _parsed(text)
    return dotted_paths(schema, _MAX_FIELDS) if schema is not None else ()


def _roles(schema: Record) -> dict[str, str]:
    """Return the fields with a role in Headworks (key, event time), by path."""
    try:
        governance = governance_of(schema)
    except HeadworksError:
        return {}
    roles = {".".join(path): "key" for path in governance.key}
    if governance.event_time is not None:
        time = ".".join(governance.event_time)
        roles[time] = "key, event time" if time in roles else "event time"
    return roles


def _as_text(path: tuple[str, ...]) -> str:
    """Return a path as findings have it, such as `stops[].place`."""
    return ".".join(path).replace(".[]", "[]").replace(".{}", "{}")


def _since(unbroken: Set[str], history: Mapping[int, Schema | None]) -> dict[str, int]:
    """Return, for each path, the first of the versions in a row that have it."""
    since: dict[str, int] = {}
    for number in sorted(history, reverse=True):
        schema = history[number]
        unbroken = {
            path for path in unbroken if isinstance(schema, Record) and has_path(schema, path)
        }
        since.update(dict.fromkeys(unbroken, number))
    return since


def type_text(schema: Schema) -> str:
    """Return a type in words."""
    if isinstance(schema, Primitive | Fixed) and schema.logical is not None:
        logical = schema.logical
        if logical.name == "decimal":
            return f"decimal({logical.precision}, {logical.scale})"
        return logical.name
    if isinstance(schema, Primitive):
        return schema.kind
    if isinstance(schema, Fixed):
        return f"fixed {schema.name.rpartition('.')[2]} of {schema.size} bytes"
    if isinstance(schema, EnumType):
        shown = ", ".join(schema.symbols[:8]) + (", …" if len(schema.symbols) > 8 else "")
        return f"enum {schema.name.rpartition('.')[2]}: {shown}"
    if isinstance(schema, Array):
        return f"array of {type_text(schema.items)}"
    if isinstance(schema, MapType):
        return f"map of {type_text(schema.values)}"
    if isinstance(schema, Union):
        return " or ".join(type_text(branch) for branch in schema.branches)
    return f"record {schema.name.rpartition('.')[2]}"
