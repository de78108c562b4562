"""The newest offset of each key, in a fixed piece of memory.

A key is known by a 16-byte hash (BLAKE2b, keyed afresh for each map, so that nobody can choose keys
that meet); its slot in a table of open addressing holds the hash and the offset: 24 bytes a key.

Rule: the memory is taken once and never grows. When the table is full, `put` says so, and the
caller goes on in another pass.
"""

from __future__ import annotations

import os
import struct
from hashlib import blake2b

__all__ = ["SLOT_BYTES", "OffsetMap"]

SLOT_BYTES = 24
_SLOT = struct.Struct("<16sQ")
_FIRST = struct.Struct("<Q")
_FREE = bytes(16)
_MAX_LOAD_FACTOR = 0.85  # above that, finding a free slot takes ever longer
_MIN_SLOTS = 16


class OffsetMap:
    """Holds up to about `memory / 28` keys, or `keys` of them if that is fewer."""

    def __init__(self, memory: int, keys: int) -> None:
        slots = min(memory // SLOT_BYTES, int(keys / _MAX_LOAD_FACTOR) + 1)
        self._slots = max(slots, _MIN_SLOTS)
        self._table = bytearray(self._slots * SLOT_BYTES)
        self._free_slots = int(self._slots * _MAX_LOAD_FACTOR)
        self._secret = os.urandom(16)

    def put(self, key: bytes, offset: int) -> bool:
        """Note that `key` is at `offset`, which only grows; False if there is no room for it."""
        hashed = self._hash(key)
        found, position = self._find(hashed)
        if not found:
            if not self._free_slots:
                return False
            self._free_slots -= 1
        _SLOT.pack_into(self._table, position, hashed, offset)
        return True

    def latest_offset(self, key: bytes) -> int | None:
        """The newest offset of `key`, or None if it was not noted."""
        found, position = self._find(self._hash(key))
        return int(_SLOT.unpack_from(self._table, position)[1]) if found else None

    def _find(self, wanted: bytes) -> tuple[bool, int]:
        """Whether a hash is there, and its slot or the free one where it belongs."""
        table = self._table
        slot = _FIRST.unpack_from(wanted)[0] % self._slots
        while True:
            position = slot * SLOT_BYTES
            stored = table[position : position + 16]
            if stored == wanted:
                return True, position
            if stored == _FREE:
                return False, position
            slot = slot + 1 if slot + 1 < self._slots else 0

    def _hash(self, key: bytes) -> bytes:
        return blake2b(key, digest_size=16, key=self._secret).digest()
