"""The rows in the bytes of an SQLite file, whatever its trees look like.

It reads each page on its own, so a damaged page hides nothing but itself. A caller must know a row
by its checksum, because a page may be free, and a record may be one of an index.

Format: "Database File Format" of the SQLite documentation, sections 1.5, 1.6, and 2.1.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from headworks._server.checked_sqlite.write_ahead_log import read_log

Value = int | float | str | bytes | None
_PAGE_BYTES = 4096  # unless the header says something else
_HEADER = b"SQLite format 3\x00"
_INDEX_INTERIOR, _INDEX_LEAF, _TABLE_LEAF = 2, 10, 13


@dataclass(frozen=True, slots=True)
class FoundRecord:
    """A record, and the place of its cell in the file."""

    at: int  # the byte
    rowid: int | None  # None: of an index, or of a table WITHOUT ROWID
    values: tuple[Value, ...] | None  # None: it cannot be read


def records(path: Path) -> Iterator[FoundRecord]:
    """Yield all records of the pages that a store would read, those in its log included."""
    content = path.read_bytes()
    size = int.from_bytes(content[16:18], "big") if content.startswith(_HEADER) else _PAGE_BYTES
    size = 65536 if size == 1 else size
    if size < 512 or size & (size - 1):
        size = _PAGE_BYTES
    log = read_log(path)
    if log.pages:
        size = len(next(iter(log.pages.values())))
    count = log.page_count or -(-len(content) // size)
    pages = {n: content[(n - 1) * size : n * size].ljust(size, b"\0") for n in range(1, count + 1)}
    pages |= log.pages
    for number in range(1, count + 1):
        yield from _records_of(number, pages, size)


def _records_of(number: int, pages: Mapping[int, bytes], size: int) -> Iterator[FoundRecord]:
    page = pages[number]
    head = 100 if number == 1 else 0
    kind = page[head]
    if kind not in (_INDEX_INTERIOR, _INDEX_LEAF, _TABLE_LEAF):
        return
    (count,) = struct.unpack_from(">H", page, head + 3)
    first = head + (12 if kind == _INDEX_INTERIOR else 8)
    for place in range(first, min(first + 2 * count, size - 1), 2):
        (at,) = struct.unpack_from(">H", page, place)
        where = (number - 1) * size + at
        try:
            start = at + 4 if kind == _INDEX_INTERIOR else at
            length, start = _varint(page, start)
            rowid = None
            if kind == _TABLE_LEAF:
                rowid, start = _varint(page, start)
            payload = _payload(pages, page, start, length, size, is_table=kind == _TABLE_LEAF)
            yield FoundRecord(where, rowid, tuple(_values(payload)))
        except (IndexError, KeyError, ValueError, struct.error):
            yield FoundRecord(where, None, None)


def _payload(
    pages: Mapping[int, bytes], page: bytes, start: int, length: int, size: int, *, is_table: bool
) -> bytes:
    """Return the payload of a cell, with its overflow pages."""
    most = size - 35 if is_table else (size - 12) * 64 // 255 - 23
    if length <= most:
        return page[start : start + length]
    least = (size - 12) * 32 // 255 - 23
    local = least + (length - least) % (size - 4)
    local = local if local <= most else least
    parts = [page[start : start + local]]
    (following,) = struct.unpack_from(">I", page, start + local)
    left = length - local
    if left > len(pages) * size:
        raise ValueError("longer than the file")
    while left > 0:
        overflow = pages[following]
        (following,) = struct.unpack_from(">I", overflow)
        parts.append(overflow[4 : 4 + left])
        left -= size - 4
    return b"".join(parts)


def _values(payload: bytes) -> Iterator[Value]:
    header, at = _varint(payload, 0)
    body = header
    if header > len(payload):
        raise ValueError("the header is longer than the record")
    while at < header:
        serial, at = _varint(payload, at)
        width = _width(serial)
        content = payload[body : body + width]
        if len(content) < width:
            raise ValueError("the record ends too early")
        body += width
        yield _value(serial, content)


def _width(serial: int) -> int:
    return (serial - 12) // 2 if serial >= 12 else (0, 1, 2, 3, 4, 6, 8, 8, 0, 0, 0, 0)[serial]


def _value(serial: int, content: bytes) -> Value:
    if serial == 0:
        return None
    if serial == 7:
        return float(struct.unpack(">d", content)[0])
    if serial < 7:
        return int.from_bytes(content, "big", signed=True)
    if serial in (8, 9):
        return serial - 8
    if serial < 12:
        raise ValueError("a type that SQLite does not write")
    return content.decode("utf-8") if serial & 1 else content


def _varint(content: bytes, at: int) -> tuple[int, int]:
    """Return a number and the place behind it."""
    number = 0
    for i in range(8):
        byte = content[at + i]
        number = number << 7 | byte & 0x7F
        if byte < 0x80:
            return number, at + i + 1
    number = number << 8 | content[at + 8]
    return number - (1 << 64) if number >> 63 else number, at + 9
