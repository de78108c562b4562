"""Compiled decoders on buffers that end where memory ends: one byte too many kills the process.

The page behind each buffer may not be read. Run `python -m tests.headworks.decoding.guard_pages
SEED PAIRS`; exit 0 means that nothing was read there. `beyond` instead of a seed reads one byte of
such a page, so that a test can see that the guard works.
"""

from __future__ import annotations

import ctypes
import faulthandler
import json
import mmap
import random
import sys
from array import array
from collections.abc import Iterator
from typing import Any

from hadoop_loader._decode.decoder import ColumnDecoder
from hadoop_loader._fetch.row_numbers import int64s
from headworks._decoding.datum_check import DatumCheck
from headworks._native import decoder
from headworks.schema import parse
from tests.consumer_sdk.test_decoding import written
from tests.evolution import evolution, value_of
from tests.headworks.decoding.damaged_data import damaged
from tests.headworks.decoding.test_compiled_decoder import record, varint

_ROOM = 64 * mmap.PAGESIZE
_NO_ACCESS = 0  # PROT_NONE of mprotect(2)


class GuardedBuffer:
    """Memory whose last page may not be read."""

    def __init__(self) -> None:
        self._pages = mmap.mmap(-1, _ROOM + mmap.PAGESIZE)
        start = ctypes.addressof(ctypes.c_char.from_buffer(self._pages))
        self.end = start + _ROOM  # address of the first byte that may not be read
        libc = ctypes.CDLL(None, use_errno=True)
        done = libc.mprotect(
            ctypes.c_void_p(self.end), ctypes.c_size_t(mmap.PAGESIZE), ctypes.c_int(_NO_ACCESS)
        )
        assert done == 0, ctypes.get_errno()

    def place(self, content: bytes) -> memoryview:
        """Return the content where it ends at the guarded page, until the next one is placed."""
        self._pages[_ROOM - len(content) : _ROOM] = content
        return memoryview(self._pages)[_ROOM - len(content) : _ROOM]


DATA, STARTS, ENDS = (GuardedBuffer() for _ in range(3))


def main(seed: int, pairs: int) -> None:
    """Decode drawn data, whole, cut at every byte, and damaged; and texts that end the memory."""
    chance = random.Random(seed)
    texts = {"type": "map", "values": "string"}  # the first text makes room for the next ones
    schema = {"type": "record", "name": "Texts", "fields": [{"name": "texts", "type": texts}]}
    maps = ({f"{n}": "x" * size for n in range(4)} for size in range(40))
    _decode_alone(schema, schema, [written(schema, {"texts": each}) for each in maps])
    for _ in range(pairs):
        writer, reader = evolution(chance)
        datum = written(writer, value_of(writer, chance))
        data = [datum[:size] for size in range(min(len(datum), 200))] + [datum]
        data += [damaged(chance, datum) for _ in range(20)]
        _decode_alone(writer, reader, data)
        _find_records(chance, data[-30:])


def _decode_alone(writer: Any, reader: Any, data: list[bytes]) -> None:
    schemas = parse(json.dumps(writer)), parse(json.dumps(reader))
    columns, check = ColumnDecoder(*schemas, start=0), DatumCheck(schemas[0])
    ids = bytes(8)
    for datum in data:
        guarded = DATA.place(datum)
        starts, ends = STARTS.place(_numbers(0)), ENDS.place(_numbers(len(datum)))
        decoder.find_ids(guarded, starts, ends)
        columns.decode_spans(guarded, int64s(starts), int64s(ends))
        spans = STARTS.place(_numbers(0, len(datum)))
        # No reasons are asked for, because Python gives them.
        check.find_bad(guarded, ENDS.place(ids), spans, 0, most=0)  # type: ignore[arg-type]


def _find_records(chance: random.Random, data: list[bytes]) -> None:
    framed = [b"\0\0\0\0\7" + datum for datum in data]
    body = b"".join(record(n, b"key", value) for n, value in enumerate(framed))
    for last in (record(len(framed), None, b"last"), _with_header(len(framed))):
        for each in _spoiled(chance, body + last):
            guarded, count = DATA.place(each), len(framed) + 1
            decoder.find_frames(guarded, count)
            if 7 * count <= len(each):
                decoder.find_records(guarded, ((len(each), count, 0, 0, -1),))


def _with_header(number: int) -> bytes:
    """Return a record whose last bytes are a header's."""
    fields = b"\0" + varint(0) + varint(number) + varint(-1) + varint(-1)
    fields += varint(1) + varint(3) + b"key" + varint(5) + b"value"
    return varint(len(fields)) + fields


def _spoiled(chance: random.Random, body: bytes) -> Iterator[bytes]:
    yield body
    for at in range(max(0, len(body) - 20), len(body)):  # lengths that are too large by 1 to 4
        for more in (2, 4, 6, 8):
            yield body[:at] + bytes([(body[at] + more) & 255]) + body[at + 1 :]
    for _ in range(20):
        yield body[: chance.randrange(len(body))]
        at = chance.randrange(len(body))
        yield body[:at] + varint(chance.choice([-1, 1, 1 << 40])) + body[at + 1 :]


def _numbers(*numbers: int) -> bytes:
    return array("q", numbers).tobytes()


if __name__ == "__main__":
    if sys.argv[1] == "beyond":
        ctypes.string_at(DATA.end, 1)
    faulthandler.enable()
    main(int(sys.argv[1]), int(sys.argv[2]))
