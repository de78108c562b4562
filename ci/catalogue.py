"""The event catalogue as the gate sees it: the .avsc files of one tree, parsed together.

A type that a file uses and does not define comes from the file of the catalogue that defines it,
by full name. Each file that describes events has a subject; a record without a `headworks`
attribute that other files use, and anything that is no record, is a shared type without one.

Rules: pure over the texts it is given, so that the working tree and a commit are read alike; one
bad file never hides the others: it carries its error. Pointers of nodes begin with `FILE#`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from headworks.errors import SchemaError, UsageError
from headworks.schema import Record, Schema, governance_of, parse, subject_of
from headworks.schema.model import PRIMITIVES, EnumType, Fixed, Json, Named, named_types
from headworks.schema.parse import decode

__all__ = ["Catalogue", "SchemaFile", "read_folder", "within"]


@dataclass(frozen=True, slots=True)
class SchemaFile:
    """One file: its path as people write it, its text, and what came of reading it."""

    path: str
    text: str
    schema: Schema | None = None
    error: SchemaError | None = None
    subject: str | None = None


def read_folder(folder: Path) -> dict[str, str]:
    """The texts of the .avsc files at or below `folder`, by path, sorted."""
    if folder.is_file():
        paths = [folder]
    elif folder.is_dir():
        paths = sorted(folder.rglob("*.avsc"))
    else:
        raise UsageError(f"{folder} does not exist", fix="name a folder of .avsc files, or a file")
    texts = {}
    for path in paths:
        try:
            texts[path.as_posix()] = path.read_text(encoding="utf-8")
        except UnicodeDecodeError as error:
            raise UsageError(f"{path} is not UTF-8: {error}") from None
    return texts


def within(path: str, schemas: Path) -> bool:
    """Whether the file `path` is `schemas`, or lies below it."""
    found, wanted = Path(path).resolve(), schemas.resolve()
    return found == wanted or wanted in found.parents


@dataclass(slots=True)
class Catalogue:
    """The files of one tree. `texts` are their contents by path."""

    texts: Mapping[str, str]
    _defined_in: dict[str, str] = field(default_factory=dict)
    _used: dict[str, list[tuple[str, ...]]] = field(default_factory=dict)
    _shared: set[str] = field(default_factory=set)
    _files: dict[str, SchemaFile] = field(default_factory=dict)
    _reading: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        defined: dict[str, set[str]] = {}
        for path, text in self.texts.items():
            try:
                value = decode(text)
            except SchemaError:
                continue
            names, uses = set[str](), list[tuple[str, ...]]()
            _walk(value, "", names, uses)
            defined[path], self._used[path] = names, uses
            for name in sorted(names):
                self._defined_in.setdefault(name, path)
        for path, uses in self._used.items():
            self._used[path] = [names for names in uses if not defined[path] & set(names)]
            self._shared.update(self._sources(path))

    def files(self) -> Iterator[SchemaFile]:
        """Every file, in the order of the paths."""
        for path in sorted(self.texts):
            yield self.file(path)

    def subjects(self) -> dict[str, SchemaFile]:
        """The files that describe events, by subject; UsageError if two claim one subject."""
        found: dict[str, SchemaFile] = {}
        for one in self.files():
            if one.subject is not None:
                other = found.setdefault(one.subject, one)
                if other is not one:
                    raise UsageError(
                        f"{other.path} and {one.path} both describe subject {one.subject!r}",
                        fix='give one of them another "topic" in its `headworks` attribute',
                    )
        return found

    def file(self, path: str) -> SchemaFile:
        """One file, parsed, with the types it takes from others."""
        known = self._files.get(path)
        if known is None:
            known = self._files[path] = self._read(path)
        return known

    def _sources(self, path: str) -> Iterator[str]:
        """The files that `path` takes types from."""
        for names in self._used.get(path, ()):
            source = next((self._defined_in[n] for n in names if n in self._defined_in), None)
            if source is not None and source != path:
                yield source

    def _read(self, path: str) -> SchemaFile:
        text = self.texts[path]
        if path in self._reading:
            loop = " -> ".join([*self._reading[self._reading.index(path) :], path])
            return SchemaFile(
                path, text, error=SchemaError(f"files use each other in a circle: {loop}")
            )
        self._reading.append(path)
        try:
            references: dict[str, Named] = {}
            for source in dict.fromkeys(self._sources(path)):
                other = self.file(source)
                if other.schema is None:
                    error = SchemaError(
                        f"{source}, which defines a type used here, cannot be read",
                        fix=f"correct {source} first",
                    )
                    return SchemaFile(path, text, error=error)
                references |= {node.name: node for node in named_types(other.schema)}
            schema = parse(text, references=references, base=f"{path}#")
            return SchemaFile(path, text, schema, None, self._subject(path, schema))
        except SchemaError as error:
            return SchemaFile(path, text, error=error)
        finally:
            self._reading.pop()

    def _subject(self, path: str, schema: Schema) -> str | None:
        if isinstance(schema, (EnumType, Fixed)):
            return None
        if isinstance(schema, Record) and path in self._shared and "headworks" not in schema.props:
            return None
        return subject_of(governance_of(schema).topic)


def _walk(value: Json, space: str, defined: set[str], used: list[tuple[str, ...]]) -> None:
    """Collect the full names that a schema defines, and the candidates of each name it uses."""
    if isinstance(value, str):
        if value not in PRIMITIVES:
            full = value if "." in value or not space else f"{space}.{value}"
            used.append((full, value))
    elif isinstance(value, list):
        for branch in value:
            _walk(branch, space, defined, used)
    elif isinstance(value, dict):
        kind = value.get("type")
        name, inner = value.get("name"), value.get("namespace")
        if kind in ("record", "error", "enum", "fixed") and isinstance(name, str):
            if "." in name:
                space = name.rpartition(".")[0]
            elif isinstance(inner, str):
                space = inner
            defined.add(name if "." in name or not space else f"{space}.{name}")
            fields = value.get("fields")
            for one in fields if isinstance(fields, list) else []:
                if isinstance(one, dict):
                    _walk(one.get("type"), space, defined, used)
        elif kind in ("array", "map"):
            _walk(value.get("items" if kind == "array" else "values"), space, defined, used)
        else:
            _walk(kind, space, defined, used)
