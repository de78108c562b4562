"""A map from each key to its latest offset, in a fixed amount of memory.

The map is a hash table with open addressing. A slot has 24 bytes: a 16-byte BLAKE2b hash of the key
and the offset. The hash has a random secret for each map, so nobody can choose keys that collide.

Rule: the memory is allocated once and never grows. When the table is full, `put` returns false,
and the caller continues in another pass.
"""

from __future__ import annotations

import os
import struct
from hashlib import blake2b

SLOT_BYTES = 24
_SLOT = struct.Struct("<16sQ")
_FIRST = struct.Struct("<Q")
_FREE = bytes(16)
_MAX_LOAD_FACTOR = 0.85  # a fuller table finds free slots too slowly
_MIN_SLOTS = 16


class OffsetMap:
    """A map for at most `keys` keys, and for as many as fit: `memory` bytes hold memory / 28."""

    def __init__(self, memory: int, keys: int) -> None:
        slots = min(memory // SLOT_BYTES, int(keys / _MAX_LOAD_FACTOR) + 1)
        self._slots = max(slots, _MIN_SLOTS)  # in the table
        self._table = bytearray(self._slots * SLOT_BYTES)
        self._free_slots = int(self._slots * _MAX_LOAD_FACTOR)  # that may still be filled
        self._secret = os.urandom(16)  # of the hash

    def put(self, key: bytes, offset: int) -> bool:
        """Set the latest offset of `key`; false if the map is full. Offsets must grow."""
        hashed = self._hash(key)
        found, position = self._find(hashed)
        if not found:
            if not self._free_slots:
                return False
            self._free_slots -= 1
        _SLOT.pack_into(self._table, position, hashed, offset)
        return True

    def latest_offset(self, key: bytes) -> int | None:
        """Return the latest offset of `key`, None if it is not in the map."""
        found, position = self._find(self._hash(key))
        return int(_SLOT.unpack_from(self._table, position)[1]) if found else None

    def _find(self, wanted: bytes) -> tuple[bool, int]:
        """Return whether a hash is present, and the position of its slot or of a free one."""
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
