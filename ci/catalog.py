"""The event catalog of the gate: the .avsc files of one tree, parsed together.

If a file uses a type that it does not define, the type comes from the file that defines its full
name. Each file that describes events has a subject, and so has each file that
governance.toml maps to one. Shared types have none: enums, fixed types, branches of
a union of events, and records without a `headworks` attribute that other files use.

Rules: the catalog is pure over its texts, so that the working tree and a commit are read alike. One
bad file never hides the others: it carries its error. Pointers of nodes begin with `FILE#`.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Final

from headworks._ci.source_map import SourceMap
from headworks.errors import SchemaError, UsageError
from headworks.schema import Record, Schema, governance_of, parse, subject_of
from headworks.schema._governance import own_subject
from headworks.schema._json_text import decode
from headworks.schema._model import PRIMITIVES, EnumType, Fixed, Json, Named, named_types
from headworks.schema._parse import SharedFields

# The folder of a warehouse in which the loader keeps commits and schemas.
WAREHOUSE_METADATA: Final = "_headworks"
# A byte that is not UTF-8, as `read_folder` keeps it.
NOT_UTF8: Final = re.compile("[\udc80-\udcff]")


@dataclass(frozen=True, slots=True)
class SchemaFile:
    """One file: its path, its text, and the result of parsing it."""

    path: str
    text: str
    schema: Schema | None = None
    error: SchemaError | None = None
    subject: str | None = None


def read_folder(folder: Path) -> dict[str, str]:
    """Return the texts of the .avsc files at or below `folder`, by path, sorted.

    Hidden folders, and the folders of a warehouse in which the loader keeps schemas, are no part
    of a catalog.
    """
    paths = [folder] if folder.is_file() else sorted(folder.rglob("*.avsc"))
    paths = [path for path in paths if belongs(path.relative_to(folder).as_posix())]
    return {path.as_posix(): _text(path.read_bytes()) for path in paths}


def belongs(path: str) -> bool:
    """Return whether a file at this path below a catalog's root is part of the catalog."""
    folders = path.split("/")[:-1]
    return not any(one.startswith(".") or one == WAREHOUSE_METADATA for one in folders)


def _text(content: bytes) -> str:
    """Return the text of a file without a byte order mark and with \\n at the end of lines.

    Bytes that are not UTF-8 become lone surrogates, so that a finding can point at them.
    """
    text = content.removeprefix(codecs.BOM_UTF8).decode("utf-8", "surrogateescape")
    return text.replace("\r\n", "\n").replace("\r", "\n")


def within(path: str, schemas: Sequence[Path]) -> bool:
    """Return whether the file `path` is one of `schemas`, or below one."""
    if ".." not in path and any(_is_below(path, wanted.as_posix()) for wanted in schemas):
        return True  # without a question to the file system
    found = Path(path).resolve()
    return any(wanted == found or wanted in found.parents for wanted in map(Path.resolve, schemas))


def _is_below(path: str, folder: str) -> bool:
    if folder == ".":
        return not path.startswith("/")
    return path == folder or path.startswith(f"{folder}/")


@dataclass(slots=True)
class SharedSchemas:
    """Equal texts and equal fields of a file, which several catalogs parse once."""

    fields: SharedFields = field(default_factory=dict)
    schemas: dict[tuple[str, str], Schema] = field(default_factory=dict)  # without other files


@dataclass(slots=True)
class SchemaCatalog:
    """The files of one tree: `texts` are their contents by path, `mapped` their given subjects.

    `named` gives the path by which pointers name a file, if it is another one.
    """

    texts: Mapping[str, str]
    mapped: Mapping[str, str] = field(default_factory=dict)
    shared: SharedSchemas | None = None
    named: Mapping[str, str] = field(default_factory=dict)
    _defined_in: dict[str, str] = field(default_factory=dict)  # file of each full name
    # By file, the candidates of each name that it uses and does not define.
    _used: dict[str, Sequence[tuple[str, ...]]] = field(default_factory=dict)
    _shared: set[str] = field(default_factory=set)  # files that others use
    _branches: set[str] = field(default_factory=set)  # types that unions of events name
    _files: dict[str, SchemaFile] = field(default_factory=dict)  # parsed, by path
    _reading: list[str] = field(default_factory=list)  # being parsed, outermost first
    _maps: dict[str, SourceMap] = field(default_factory=dict)  # by path

    def __post_init__(self) -> None:
        if len(self.texts) == 1:  # there is no other file to use
            return
        defined: dict[str, frozenset[str]] = {}
        for path, text in self.texts.items():
            found = _declarations(text)
            if found is None:
                continue
            defined[path], self._used[path], branches = found
            if path not in self.mapped:
                self._branches.update(branches)
            for name in sorted(defined[path]):
                self._defined_in.setdefault(name, path)
        for path, uses in self._used.items():
            self._used[path] = [names for names in uses if not defined[path].intersection(names)]
            self._shared.update(self._sources(path))

    def files(self) -> Iterator[SchemaFile]:
        """Yield every file in the order of the paths."""
        for path in sorted(self.texts):
            yield self.file(path)

    def subjects(self, checked: Sequence[Path] | None = None) -> dict[str, SchemaFile]:
        """Return the files with a subject, by subject.

        Raises UsageError if two files have one subject, and one of them is in `checked` (None: any
        file).
        """
        found: dict[str, SchemaFile] = {}
        for one in self.files():
            if one.subject is not None:
                other = found.setdefault(one.subject, one)
                if other is not one:
                    if checked is not None and not (
                        within(one.path, checked) or within(other.path, checked)
                    ):
                        continue
                    raise UsageError(
                        f"{other.path} and {one.path} both describe subject {one.subject!r}",
                        fix='give one of them another "topic" in its `headworks` attribute, or '
                        "a subject of its own in governance.toml",
                    )
        return found

    def source(self, path: str) -> SourceMap:
        """Return the source map of a file."""
        known = self._maps.get(path)
        if known is None:
            known = self._maps[path] = SourceMap(self.texts[path])
        return known

    def file(self, path: str) -> SchemaFile:
        """Return one file, parsed with the types that it uses from others."""
        known = self._files.get(path)
        if known is None:
            known = self._files[path] = self._read(path)
        return known

    def without_subject(self, path: str) -> Schema | None:
        """Return the schema of a file that parses and is no event, such as a key's primitive."""
        one = self.file(path)
        if one.error is None or one.error.rule != "event-is-record":
            return one.schema
        return SchemaCatalog(self.texts, {path: path}).file(path).schema

    def touches(self, path: str, schemas: Sequence[Path]) -> bool:
        """Return whether a file is in `schemas`, or uses types from one that is."""
        return any(within(one, schemas) for one in [path, *self.sources(path)])

    def sources(self, path: str) -> list[str]:
        """Return the files from which `path` uses types, directly or not, each once."""
        found: dict[str, None] = {}
        stack = [path]
        while stack:
            for source in self._sources(stack.pop()):
                if source not in found and source != path:
                    found[source] = None
                    stack.append(source)
        return list(found)

    def _sources(self, path: str) -> Iterator[str]:
        """Yield the files from which `path` uses types directly."""
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
            _check_encoding(text)
            schema = self._parse(text, f"{self.named.get(path, path)}#", references)
            return SchemaFile(path, text, schema, None, self._subject(path, schema))
        except SchemaError as error:
            return SchemaFile(path, text, error=error)
        finally:
            self._reading.pop()

    def _parse(self, text: str, base: str, references: Mapping[str, Named]) -> Schema:
        shared = self.shared
        if shared is None:
            return parse(text, references=references, base=base)
        known = None if references else shared.schemas.get((base, text))
        if known is None:
            fields = shared.fields
            known = parse(text, references=references, base=base, shared=fields, adds=True)
            if not references:
                shared.schemas[base, text] = known
        return known

    def _subject(self, path: str, schema: Schema) -> str | None:
        mapped = self.mapped.get(path)
        if mapped is not None:
            return mapped
        own = own_subject(schema)
        if own is not None:
            if isinstance(schema, Record):
                governance_of(schema)  # refuses wrong members
            return own
        if isinstance(schema, (EnumType, Fixed)):
            return None
        if (
            isinstance(schema, Record)
            and path in self._shared
            and (schema.name in self._branches or "headworks" not in schema.props)
        ):
            return None
        return subject_of(governance_of(schema).topic)


def _check_encoding(text: str) -> None:
    wrong = None if text.isascii() else NOT_UTF8.search(text)
    if wrong is not None:
        raise SchemaError(
            f"the file is not UTF-8: byte 0x{ord(wrong.group()) - 0xDC00:02x}",
            rule="utf-8",
            fix="save it as UTF-8",
        )


@lru_cache(maxsize=20_000)
def _declarations(
    text: str,
) -> tuple[frozenset[str], tuple[tuple[str, ...], ...], tuple[str, ...]] | None:
    """Return what `_walk` collects of a text, and the branches that it names; None if no JSON."""
    try:
        value = decode(text)
    except SchemaError:
        return None
    names, uses = set[str](), list[tuple[str, ...]]()
    _walk(value, names, uses)
    branches = tuple(one for one in _list(value) if isinstance(one, str))
    return frozenset(names), tuple(uses), branches


def _walk(value: Json, defined: set[str], used: list[tuple[str, ...]]) -> None:
    """Collect the full names that a schema defines, and the candidates of each name that it uses.

    It keeps the order of the text and does not recurse: `parse` has not refused the text yet.
    """
    stack: list[tuple[Json, str]] = [(value, "")]
    while stack:
        node, space = stack.pop()
        if isinstance(node, str):
            if node not in PRIMITIVES:
                full = node if "." in node or not space else f"{space}.{node}"
                used.append((full, node))
        elif isinstance(node, list):
            stack += [(branch, space) for branch in reversed(node)]
        elif isinstance(node, dict):
            kind, name, inner = node.get("type"), node.get("name"), node.get("namespace")
            if kind in ("record", "error", "enum", "fixed") and isinstance(name, str):
                if "." in name:
                    space = name.rpartition(".")[0]
                elif isinstance(inner, str):
                    space = inner
                defined.add(name if "." in name or not space else f"{space}.{name}")
                fields = node.get("fields")
                types = [one.get("type") for one in _list(fields) if isinstance(one, dict)]
                stack += [(type_, space) for type_ in reversed(types)]
            elif kind in ("array", "map"):
                stack.append((node.get("items" if kind == "array" else "values"), space))
            else:
                stack.append((kind, space))


def _list(value: Json) -> list[Json]:
    return value if isinstance(value, list) else []
