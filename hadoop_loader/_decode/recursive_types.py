"""Recursive types as JSON text: a schema that a table can hold, and datums in it.

A record that contains itself has no column type. From the place on where it is met again inside
itself, its value becomes JSON text, if the operator wants it (setting `recursive_types`):

    Node{value: int, next: [null, Node]}   ->   Node{value: int, next: [null, string]}

Rules:

- The flat schema differs from the written one in these places alone. Everything behind the decoder
  knows the flat schema only.
- A datum is copied byte by byte up to these places. The text is as the message was written: later
  versions of the schema do not change it.
- If anything in the schema is sensitive, so is all text.
- In the text, records and maps are objects, bytes are base64, a number is the one that was
  written, and NaN and the infinities are strings.
- Hostile data cost no more than elsewhere: see `primitives`.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import lru_cache
from typing import Any

from hadoop_loader._decode.generated_decoder import DatumErrors, datum_reason
from hadoop_loader._decode.json_values import JsonReaders, ReadJson, read_number
from hadoop_loader._fetch.messages import MessageColumns
from headworks._decoding.generated_decoder import DATUM_ERRORS
from headworks._decoding.primitives import BadDatumError, Skipper, skipper
from headworks._wire import HEADER_SIZE
from headworks.errors import SchemaError
from headworks.schema import (
    Array,
    MapType,
    Primitive,
    Record,
    Schema,
    Union,
    parse,
)
from headworks.schema._json_text import decode
from headworks.schema._model import PRIMITIVES
from headworks.schema._sensitive import sensitive_paths

_MAX_CACHED_SCHEMAS = 10_000
_Copy = Callable[[bytes, int, bytearray], int]  # appends the flat form; returns the position after


@lru_cache(maxsize=_MAX_CACHED_SCHEMAS)
def flat_schema(text: str) -> str | None:
    """Return the text of the flat schema; None if the schema is not recursive, or has none.

    There is none if a union would hold text twice, or if the text is no Avro schema.
    """
    try:
        marked = sensitive_paths(parse(text, strict=False))
    except (SchemaError, RecursionError):
        return None  # the code that needs the schema refuses it by name
    flattened = _Flattened(sensitive=bool(marked))
    flat = json.dumps(flattened.type(decode(text), ""))
    if not flattened.cuts:
        return None
    try:
        parse(flat)
    except SchemaError:
        return None
    return flat


class FlatDatums:
    """Turns datums of a recursive schema into datums of its flat schema."""

    def __init__(self, text: str) -> None:
        self._open: list[Record] = []
        self._known: dict[int, _Copy | None] = {}  # by id of a record
        self._readers = JsonReaders()
        self._schema = parse(text, strict=False)
        copy = self._copier(self._schema)
        assert copy is not None  # the schema is recursive
        self._copy: _Copy = copy

    def flatten(self, value: bytes, start: int) -> bytes:
        """Return a value whose datum, which begins at `start`, is flat.

        Raises one of DATUM_ERRORS for bytes that are no datum of the schema.
        """
        out = bytearray(value[:start])
        end = self._copy(value, start, out)
        return bytes(out) + value[end:]  # bytes after the datum stay, and make it a bad one

    def flatten_all(
        self, messages: MessageColumns
    ) -> tuple[MessageColumns, MessageColumns, DatumErrors]:
        """Return the good messages, the same flat, and (index, reason) of the others."""
        found = []
        errors: DatumErrors = []
        for at, m in enumerate(messages):
            try:
                found.append(m._replace(value=self.flatten(m.value or b"", HEADER_SIZE)))
            except DATUM_ERRORS as error:
                errors.append((at, datum_reason(error)))
        good = messages.without(at for at, _ in errors) if errors else messages
        return good, MessageColumns.of(found), errors

    def _copier(self, schema: Schema) -> _Copy | None:
        """Return what copies a datum of `schema`; None if its flat form is the same bytes."""
        if isinstance(schema, Record):
            if any(schema is record for record in self._open):
                return _text(self._readers.of(schema))
            if id(schema) not in self._known:
                self._open.append(schema)
                self._known[id(schema)] = self._record(schema)
                self._open.pop()
            return self._known[id(schema)]
        if isinstance(schema, Union):
            branches = [self._copier(branch) for branch in schema.branches]
            if any(branches):
                return _union([_any(c, s) for c, s in zip(branches, schema.branches, strict=True)])
        if isinstance(schema, Array):
            item = self._copier(schema.items)
            return None if item is None else _blocks(item)
        if isinstance(schema, MapType):
            value = self._copier(schema.values)
            return None if value is None else _blocks(_steps([_any(None, _KEY), value]))
        return None

    def _record(self, schema: Record) -> _Copy | None:
        copiers = [self._copier(f.type) for f in schema.fields]
        if not any(copiers):
            return None
        return _steps([_any(c, f.type) for c, f in zip(copiers, schema.fields, strict=True)])


class _Flattened:
    """The flat form of a schema's JSON; `cuts` counts the places that became text."""

    def __init__(self, *, sensitive: bool) -> None:
        self.cuts = 0
        self._cut: Any = {"type": "string", "sensitive": True} if sensitive else "string"
        self._open: set[str] = set()  # full names of the records around

    def type(self, value: Any, namespace: str) -> Any:
        """Return a type; names in it belong to `namespace`."""
        if isinstance(value, str):
            return self._name(value, namespace, value)
        if isinstance(value, list):
            return [self.type(branch, namespace) for branch in value]
        kind = value["type"]
        if kind in ("record", "error"):
            return self._record(value, namespace)
        for member in ("items", "values"):
            if kind == {"items": "array", "values": "map"}[member]:
                return {**value, member: self.type(value[member], namespace)}
        return self._name(kind, namespace, value) if kind not in ("enum", "fixed") else value

    def _name(self, name: str, namespace: str, value: Any) -> Any:
        if name not in PRIMITIVES and _full_name(name, namespace) in self._open:
            self.cuts += 1
            return self._cut
        return value

    def _record(self, value: dict[str, Any], namespace: str) -> dict[str, Any]:
        name = _full_name(value["name"], value.get("namespace", namespace))
        self._open.add(name)
        fields = [self._field(f, name.rpartition(".")[0]) for f in value["fields"]]
        self._open.remove(name)
        return {**value, "fields": fields}

    def _field(self, value: dict[str, Any], namespace: str) -> dict[str, Any]:
        flat = self.type(value["type"], namespace)
        found = {**value, "type": flat}
        first, before = (
            (one[0] if isinstance(one, list) and one else one) for one in (flat, value["type"])
        )
        if "default" in value and first in ("string", self._cut) and first != before:
            found["default"] = json.dumps(value["default"])
        return found


def _full_name(name: str, namespace: str) -> str:
    return name.removeprefix(".") if "." in name or not namespace else f"{namespace}.{name}"


# Copying


def _put_number(out: bytearray, value: int) -> None:
    left = value << 1
    while left > 127:
        out.append(left & 127 | 128)
        left >>= 7
    out.append(left)


def _any(copy: _Copy | None, schema: Schema) -> _Copy:
    """Return `copy`, or what copies the bytes as they are."""
    if copy is not None:
        return copy
    skip: Skipper = skipper(schema)

    def same(data: bytes, at: int, out: bytearray) -> int:
        end = skip(data, at, len(data))
        out += data[at:end]
        return end

    return same


def _steps(steps: list[_Copy]) -> _Copy:
    def copy(data: bytes, at: int, out: bytearray) -> int:
        for step in steps:
            at = step(data, at, out)
        return at

    return copy


def _union(branches: list[_Copy]) -> _Copy:
    def copy(data: bytes, at: int, out: bytearray) -> int:
        branch, at = read_number(data, at)
        if not 0 <= branch < len(branches):
            raise BadDatumError(f"{branch} is no branch of the union")
        _put_number(out, branch)
        return branches[branch](data, at, out)

    return copy


def _blocks(item: _Copy) -> _Copy:
    """Copy blocks without their sizes in bytes, which change."""

    def copy(data: bytes, at: int, out: bytearray) -> int:
        while True:
            count, at = read_number(data, at)
            if count < 0:
                _, at = read_number(data, at)
                count = -count
            _put_number(out, count)
            if count == 0:
                return at
            for _ in range(count):
                at = item(data, at, out)

    return copy


def _text(read: ReadJson) -> _Copy:
    def copy(data: bytes, at: int, out: bytearray) -> int:
        value, at = read(data, at, [0])
        text = json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()
        _put_number(out, len(text))
        out += text
        return at

    return copy


_KEY = Primitive("string")
