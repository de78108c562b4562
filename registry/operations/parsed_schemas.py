"""Parsed schemas: from a request's text, or from the store, with their references resolved.

Rules:

- A stored schema never changes. The last 4,096 parsed ones are cached by (context, id).
- A schema that is not committed is not cached: if its transaction fails, another one gets its id.
- The versions of a subject are alike, and so are the events of a catalog. A field that many texts
  have at the same place is parsed once and held once, and needs no comparison with itself. A text
  that is to be registered adds its fields, also in a dry run; one that is only checked does not.
- New text is parsed strictly. Stored text is parsed leniently, so that schemas that an older rule
  accepted stay readable.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from threading import Lock
from typing import cast

from sqlalchemy import Connection

from headworks._registry.model import refusals
from headworks._registry.model.definition import Definition, SchemaReference
from headworks._registry.store import schemas
from headworks._registry.store.schemas import StoredSchema, StoredVersion
from headworks._subject import Subject
from headworks.errors import SchemaError
from headworks.schema import Schema, parse
from headworks.schema._canonical import canonical_text, normalized_text
from headworks.schema._model import Field, Named, Primitive, PrimitiveKind, named_types
from headworks.schema._parse import SharedFields

_MAX_CACHED_SCHEMAS = 4096
_MAX_SHARED_FIELDS = 100_000
_MAX_SHARED_BYTES = 20_000_000  # of their texts, packed
_MAX_NEW_CHARACTERS = 50_000
_MAX_NEW_SCHEMAS = 64  # a registration parses its text twice: before and under the writers' lock


@dataclass(frozen=True, slots=True)
class ParsedSchema:
    """New text after parsing: its nodes, and its content without metadata and rules.

    The content has the canonical text, and references with actual versions.
    """

    schema: Schema
    content: Definition


_Spelling = tuple[str, bool, bool]  # a text, and how it is printed and parsed


class _BoundedFields(dict[tuple[str, bytes], Field]):
    """Fields by pointer and packed text; all are forgotten when there are too many or too large."""

    __slots__ = ("_bytes",)

    def __init__(self) -> None:
        super().__init__()
        self._bytes = 0

    def __setitem__(self, key: tuple[str, bytes], value: Field) -> None:
        if len(self) >= _MAX_SHARED_FIELDS or self._bytes >= _MAX_SHARED_BYTES:
            self.clear()
            self._bytes = 0
        self._bytes += len(key[1])
        super().__setitem__(key, value)


class SchemaCache:
    """Parses schemas and caches the stored ones; safe to share between threads."""

    def __init__(self) -> None:
        self._schemas: OrderedDict[tuple[str, int], Schema] = OrderedDict()  # by context and id
        self._fields: SharedFields = _BoundedFields()  # that schemas share
        self._new: OrderedDict[_Spelling, ParsedSchema] = OrderedDict()  # without references
        self._uncommitted: OrderedDict[tuple[str, int], None] = OrderedDict()
        self._lock = Lock()  # guards all of them against other threads

    def parse_new(
        self,
        connection: Connection,
        subject: Subject,
        text: str,
        references: Iterable[SchemaReference],
        *,
        normalize: bool,
        strict: bool,
        printed: bool = True,
    ) -> ParsedSchema:
        """Parse a request's text; ServiceError 42201 if it or a reference is not valid.

        Without `printed`, the text is only checked: the canonical text is left empty.
        """
        pinned = tuple(self._pin(connection, subject, one, strict) for one in references)
        names = self._names(connection, subject.context, pinned)
        return self._parse_new(
            text, pinned, names, normalize=normalize, strict=strict, printed=printed
        )

    def parse_alone(self, text: str, *, strict: bool) -> ParsedSchema:
        """Do the same, without the canonical text, for a text that has no references."""
        return self._parse_new(text, (), {}, normalize=False, strict=strict, printed=False)

    def _parse_new(
        self,
        text: str,
        pinned: tuple[SchemaReference, ...],
        names: Mapping[str, Named],
        *,
        normalize: bool,
        strict: bool,
        printed: bool,
    ) -> ParsedSchema:
        try:
            shared = self._fields if strict else None  # lenient texts would add to them in any case
            schema = parse(text, references=names, strict=strict, shared=shared, adds=printed)
            if not printed:
                return ParsedSchema(schema, Definition("", pinned))
            canonical = _print(schema, text, names, normalize=normalize)
        except SchemaError as error:
            fix = f" Fix: {error.fix}." if error.fix else ""
            raise refusals.invalid_schema(f"Invalid schema: {error.message}.{fix}") from None
        parsed = ParsedSchema(schema, Definition(canonical, pinned))
        if not pinned and len(text) <= _MAX_NEW_CHARACTERS:
            with self._lock:
                self._new[text, normalize, strict] = parsed
                if len(self._new) > _MAX_NEW_SCHEMAS:
                    self._new.popitem(last=False)
        return parsed

    def known(self, text: str, *, normalize: bool, strict: bool) -> ParsedSchema | None:
        """Return one of the last parsed texts without references, or None."""
        with self._lock:
            return self._new.get((text, normalize, strict))

    def begin_adding(self, stored: StoredSchema) -> None:
        """Do not cache a schema from before it is added until `end_adding`."""
        with self._lock:
            self._uncommitted[stored.context, stored.id] = None
            if len(self._uncommitted) > _MAX_CACHED_SCHEMAS:  # far more than a transaction adds
                self._uncommitted.popitem(last=False)

    def end_adding(self) -> None:
        """All schemas that were added are committed, or their transactions have failed."""
        with self._lock:
            self._uncommitted.clear()

    def cached(self, stored: StoredSchema) -> Schema | None:
        """Return the nodes of a stored schema, if it was loaded lately."""
        key = (stored.context, stored.id)
        with self._lock:
            kept = self._schemas.get(key)
            if kept is not None:
                self._schemas.move_to_end(key)
            return kept

    def load(self, connection: Connection, stored: StoredSchema) -> Schema:
        """Return the nodes of a stored schema."""
        kept = self.cached(stored)
        if kept is not None:
            return kept
        key = (stored.context, stored.id)
        definition = stored.definition
        names = self._names(connection, stored.context, definition.references)
        schema = parse(definition.text, references=names, strict=False, shared=self._fields)
        with self._lock:
            if key not in self._uncommitted:  # nor does a committed schema refer to one of those
                self._schemas[key] = schema
            if len(self._schemas) > _MAX_CACHED_SCHEMAS:
                self._schemas.popitem(last=False)
        return schema

    def resolved_text(self, connection: Connection, stored: StoredSchema) -> str:
        """Return the text of a stored schema with its references written out."""
        if not stored.definition.references:
            return stored.definition.text
        return canonical_text(self.load(connection, stored))

    def _pin(
        self, connection: Connection, subject: Subject, reference: SchemaReference, strict: bool
    ) -> SchemaReference:
        """Return the reference with its actual version (-1: the latest)."""
        target = Subject.parse(reference.subject, within=subject.context)
        found = _target(connection, target, reference.version, deleted=not strict)
        if found is None:
            raise refusals.invalid_schema(
                f"Invalid schema: reference '{reference.name}' names subject "
                f"'{reference.subject}', version {reference.version}, which does not exist"
            )
        return SchemaReference(reference.name, reference.subject, found.number)

    def _names(
        self, connection: Connection, context: str, references: Iterable[SchemaReference]
    ) -> dict[str, Named]:
        """Return every named type that the references define, by full name."""
        names: dict[str, Named] = {}
        for reference in references:
            target = Subject.parse(reference.subject, within=context)
            found = _target(connection, target, reference.version, deleted=True)
            if found is not None:
                for node in named_types(self.load(connection, found.schema)):
                    names.setdefault(node.name, node)
        return names


def _target(
    connection: Connection, target: Subject, version: int, *, deleted: bool
) -> StoredVersion | None:
    number = None if version == -1 else version
    found = [
        one
        for one in schemas.versions_of(connection, target, number=number)
        if deleted or not one.deleted
    ]
    return found[-1] if found else None


def _print(schema: Schema, text: str, names: Mapping[str, Named], *, normalize: bool) -> str:
    """Return the canonical or normalized text, with referenced types as names."""
    write = normalized_text if normalize else canonical_text
    if not names:
        return write(schema)
    # The printer writes the body of a type at its first use. A leaf with its name replaces each
    # referenced type, so that the body stays in the schema that defines it.
    leaves = {
        name: cast(Named, Primitive(cast(PrimitiveKind, name), pointer=node.pointer))
        for name, node in names.items()
    }
    return write(parse(text, references=leaves, strict=False))
