"""The check that an event has no more values inside each other than its readers take.

Rules:

- Only records that contain themselves can have too many, so only their data are looked at.
- The readers' own verdict decides (`headworks._decoding.datum_check`).
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

from headworks._decoding.datum_check import MAX_NESTING, DatumCheck
from headworks._decoding.primitives import BadDatumError
from headworks.schema import Array, MapType, Record, Schema, Union, parse
from headworks.schema._governance import event_record

TOO_DEEP = f"at most {MAX_NESTING} records, arrays, and maps inside each other"


def nesting_check(schema_text: str, record: str) -> Callable[[bytes], str | None] | None:
    """Return what says why readers refuse a datum, or None; None if the schema is not recursive.

    The reason is told as what is expected. `record` is the full name of the datum's record in the
    schema. If there is none of that name, the datum is of the whole schema.
    """
    schema = parse(schema_text, strict=False)
    with suppress(LookupError):
        schema = event_record(schema, record)
    if not _is_recursive(schema, (), set()):
        return None
    check = DatumCheck(schema)

    def expected(datum: bytes) -> str | None:
        try:
            check.require_datum(datum, 0)
        except BadDatumError as error:
            return f"a datum that readers take ({error})"
        return None

    return expected


def _is_recursive(schema: Schema, outside: tuple[str, ...], seen: set[str]) -> bool:
    """Return whether a record is inside itself; `seen` are those that need no second look."""
    if isinstance(schema, Record):
        if schema.name in outside:
            return True
        if schema.name in seen:
            return False
        seen.add(schema.name)
        inside = (*outside, schema.name)
        return any(_is_recursive(field.type, inside, seen) for field in schema.fields)
    if isinstance(schema, Union):
        return any(_is_recursive(branch, outside, seen) for branch in schema.branches)
    if isinstance(schema, Array):
        return _is_recursive(schema.items, outside, seen)
    return isinstance(schema, MapType) and _is_recursive(schema.values, outside, seen)
