"""The keys and values of a batch, by schema id: what a topic that validates its records looks at.

Rules: the C extension reads an ordinary batch. `parse_records` reads every other one, and all of
them without the extension; it also says what is wrong with a batch.
"""

from __future__ import annotations

from array import array
from typing import Final, NamedTuple

from headworks import _wire
from headworks._kafka.records import Batch
from headworks._kafka.records.record import parse_records
from headworks._native import COMPILED, decoder

NO_VALUE: Final = -1
"""In place of a schema id: a null."""
NO_FRAME: Final = -2
"""In place of a schema id: bytes without the magic byte and an id."""

Numbers = bytes | bytearray


class FramedParts(NamedTuple):
    """The keys or the values of a batch, in the order of the records.

    `ids` and `spans` are native numbers of 64 bits: the schema id of each, and where its datum
    begins and ends in `data`. Without a frame, that is the whole key or value.
    """

    data: bytes
    ids: Numbers
    spans: Numbers

    def with_id(self, schema_id: int) -> list[int]:
        """Return the numbers of the records with a schema id, or NO_VALUE, or NO_FRAME."""
        ids = memoryview(self.ids).cast("q")
        return [number for number, one in enumerate(ids) if one == schema_id]

    def distinct_ids(self) -> list[int]:
        """Return the schema ids, and NO_FRAME, that occur."""
        return sorted(set(memoryview(self.ids).cast("q")) - {NO_VALUE})

    def datum(self, number: int) -> bytes:
        """Return the bytes of a key or value behind its frame."""
        start, end = memoryview(self.spans).cast("q")[2 * number : 2 * number + 2]
        return self.data[start:end]


class FramedRecords(NamedTuple):
    """The records of a batch; `misnumbered` are those whose own number is another."""

    keys: FramedParts
    values: FramedParts
    misnumbered: tuple[tuple[int, int], ...] = ()


def framed_records(data: bytes, batch: Batch) -> FramedRecords:
    """Return the records in the `record_data` of a batch. Raises InvalidBatchError."""
    found = decoder.find_frames(data, batch.record_count) if COMPILED else None
    if found is None:
        return _parsed(data, batch)
    key_ids, key_spans, value_ids, value_spans = found
    return FramedRecords(
        FramedParts(data, key_ids, key_spans), FramedParts(data, value_ids, value_spans)
    )


def _parsed(data: bytes, batch: Batch) -> FramedRecords:
    keys, values, misnumbered = _Parts(), _Parts(), []
    for number, record in enumerate(parse_records(data, batch)):
        said = record.offset - batch.base_offset
        if said != number:
            misnumbered.append((number, said))
        keys.add(record.key)
        values.add(record.value)
    return FramedRecords(keys.taken(), values.taken(), tuple(misnumbered))


class _Parts:
    """The keys or the values, while they are collected."""

    def __init__(self) -> None:
        self._data = bytearray()
        self._ids = array("q")
        self._spans = array("q")

    def add(self, part: bytes | None) -> None:
        """Add the next one."""
        schema_id, datum = NO_VALUE, b""
        if part is not None:
            try:
                schema_id, datum = _wire.unframe(part)
            except _wire.FramingError:
                schema_id, datum = NO_FRAME, part
        self._ids.append(schema_id)
        self._spans.extend((len(self._data), len(self._data) + len(datum)))
        self._data += datum

    def taken(self) -> FramedParts:
        """Return all that were added."""
        return FramedParts(bytes(self._data), self._ids.tobytes(), self._spans.tobytes())
