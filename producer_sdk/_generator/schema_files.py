"""Reads schema files into the named types that become classes.

Rules:

- The text of a file is kept verbatim, because producers look it up in the registry.
- Files may use types of other files by name. The text of such a file is not a whole schema, so its
  canonical form, with the used types inlined, is kept instead.
- A file may hold a union of records: the events of one topic. Each branch is an event of the
  union's schema, also if a file of its own describes it.
- Several files may define the same type, if all definitions are equal. Otherwise one class would
  have two meanings, and the error names the two files.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from headworks.errors import SchemaError, UsageError
from headworks.schema import EnumType, Fixed, Record, Schema, Union, governance_of, parse
from headworks.schema._canonical import canonical_text
from headworks.schema._model import Named, named_types


@dataclass(frozen=True, slots=True)
class ParsedSchemaFile:
    """One schema file: its path, the schema's text, and its root type."""

    path: Path
    text: str
    root: Named | Union

    def branch_of(self, record: Record) -> int | None:
        """Return the number of a record in the file's union; None if it is no branch of one."""
        branches = self.root.branches if isinstance(self.root, Union) else ()
        names = [branch.name for branch in branches if isinstance(branch, Record)]
        return names.index(record.name) if record.name in names else None


@dataclass(frozen=True, slots=True)
class TypeCatalog:
    """All files and all named types, by full name."""

    files: tuple[ParsedSchemaFile, ...]
    types: dict[str, Named]

    def file_of(self, record: Record) -> ParsedSchemaFile | None:
        """Return the file of which this record is a branch, or else the root; None if of none."""
        roots = [s for s in self.files if isinstance(s.root, Record) and s.root.name == record.name]
        unions = [s for s in self.files if s.branch_of(record) is not None]
        return next(iter(unions + roots), None)

    def events(self) -> list[ParsedSchemaFile]:
        """Return the files whose schemas messages have: of unions, and of records beside them."""
        return [
            file
            for file in self.files
            if isinstance(file.root, Union)
            or (isinstance(file.root, Record) and self.file_of(file.root) is file)
        ]


def namespace_of(full_name: str) -> str:
    """Return the namespace of a full name; "" if it has none."""
    return full_name.rpartition(".")[0]


def read_type_catalog(paths: Sequence[Path]) -> TypeCatalog:
    """Read schema files, and all `.avsc` files below folders.

    Raises UsageError for a path with no schema, SchemaError (with the file's name) for a bad one.
    """
    files = _parse_all({path: _read(path) for path in _files(paths)})
    types: dict[str, Named] = {}
    origin: dict[str, Path] = {}
    for file in files:
        for node in named_types(file.root):
            name = node.name
            if name in types and types[name] is not node:
                if canonical_text(types[name]) != canonical_text(node):
                    raise UsageError(
                        f"type {name} is defined differently in {origin[name]} and {file.path}",
                        fix="define it once and use it by name, or give one another name",
                    )
                continue
            types[name], origin[name] = node, file.path
    _check_unions(files)
    return TypeCatalog(tuple(files), types)


def _check_unions(files: Sequence[ParsedSchemaFile]) -> None:
    """Raise UsageError if two unions are the events of one topic."""
    found: dict[str, Path] = {}
    for file in files:
        if isinstance(file.root, Union):
            topic = governance_of(file.root).topic
            other = found.setdefault(topic, file.path)
            if other != file.path:
                raise UsageError(
                    f"{other} and {file.path} both hold the events of topic {topic!r}",
                    fix="write one union of all events of the topic",
                )


def _files(paths: Sequence[Path]) -> list[Path]:
    found: dict[Path, None] = {}
    for path in paths:
        if path.is_dir():
            below = sorted(path.rglob("*.avsc"))
            if not below:
                raise UsageError(f"no .avsc file below {path}", fix="name the folder of schemas")
            found.update(dict.fromkeys(below))
        elif path.is_file():
            found[path] = None
        else:
            raise UsageError(f"{path} does not exist", fix="name a schema file or a folder")
    return list(found)


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"cannot read {path}: {error}") from None


def _parse_all(texts: dict[Path, str]) -> list[ParsedSchemaFile]:
    """Parse files in an order in which every used type is known."""
    known: dict[str, Named] = {}
    files: dict[Path, ParsedSchemaFile] = {}
    while len(files) < len(texts):
        before, problem = len(files), None
        for path, text in texts.items():
            if path in files:
                continue
            try:
                file = _parse_one(path, text, known)
            except SchemaError as error:
                if error.rule != "undefined-type":
                    raise _in_file(path, error) from None
                problem = problem or _in_file(path, error)
                continue
            files[path] = file
            for node in named_types(file.root):
                known.setdefault(node.name, node)
        if len(files) == before and problem is not None:
            raise problem
    return [files[path] for path in texts]


def _parse_one(path: Path, text: str, known: dict[str, Named]) -> ParsedSchemaFile:
    try:
        return ParsedSchemaFile(path, text, _root(parse(text)))
    except SchemaError as error:
        if error.rule != "undefined-type":
            raise
    root = _root(parse(text, references=known))
    return ParsedSchemaFile(path, canonical_text(root), root)


def _root(schema: Schema) -> Named | Union:
    if isinstance(schema, Union):
        governance_of(schema)  # refuses a union that is not of the events of one topic
        return schema
    if not isinstance(schema, Record | EnumType | Fixed):
        raise SchemaError(
            f"a schema file must define a record, an enum or a fixed, not a {schema.kind}",
            rule="root",
            fix="wrap it in a record with one field",
        )
    return schema


def _in_file(path: Path, error: SchemaError) -> SchemaError:
    return SchemaError(
        f"{path}: {error.reason}",
        pointer=error.pointer,
        rule=error.rule,
        fix=error.fix or "correct the schema",
    )
