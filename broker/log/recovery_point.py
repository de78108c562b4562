"""The recovery point of a log: where its first segment starts, and up to where it is on disk.

The file `recovery-point` in the folder of a partition has two slots of 512 bytes. Each holds a
position, the base offset of the first segment, and a checksum. After every flush the broker
overwrites the older slot.

Rules:

- A position is written only after the flush that covers it has returned. Nothing waits for the
  slot itself: a power cut may leave an older position, which claims less and is still true.
- An orderly stop writes both slots and syncs them. The position is then the exact end of the log.
- Everything before the position was on disk. If it is damaged or missing, no crash did that.
- Retention syncs the base offset of the first segment before it deletes the older ones. Slots are
  overwritten in place, which a full disk permits.
- The folder holds no record beyond the position that a client with acks=all was promised.
- If neither slot is valid, the file is damaged, and the log is not opened.
"""

from __future__ import annotations

import os
from pathlib import Path
from threading import Lock
from typing import NamedTuple

from crc32c import crc32c

from headworks import _system_calls
from headworks._atomic_file import replace_file
from headworks._broker.log.segment import salvage_fix
from headworks.errors import CorruptError

FILE = "recovery-point"
_LINE = b"recovery-point-1 %08x %b\n"  # checksum and body
_BODY = b"%d %d %d %d"  # the position, and the base offset of the first segment
_SLOT_BYTES = 512  # of a disk's smallest sector, so that a torn write damages one slot only
_SLOTS = 2
_new = tuple.__new__  # a named tuple takes three times as long to create itself


class LogPosition(NamedTuple):
    """An offset and where its record starts."""

    offset: int
    segment_base_offset: int
    position: int  # byte in the file of that segment


class _Slot(NamedTuple):
    flushed: LogPosition
    first: int  # base offset of the first segment


class RecoveryPoint:
    """The open file of one log. The flusher thread and the event loop may call it."""

    def __init__(self, folder: Path, slot: _Slot | None = None) -> None:
        self._path = folder / FILE
        self._slot = slot  # the newest in the file; None: there is no file yet
        self._durable = False  # whether both slots are on disk as they are
        self._older = 0  # the number of the slot to overwrite
        self._fd = -1
        self._lock = Lock()

    @classmethod
    def load(cls, folder: Path) -> RecoveryPoint:
        """Read the file in `folder`, which may be missing. Raises CorruptError if it is damaged."""
        path = folder / FILE
        try:
            data = path.read_bytes()
        except FileNotFoundError:
            return cls(folder)
        slots = [_decoded(data[at : at + _SLOT_BYTES]) for at in (0, _SLOT_BYTES)]
        valid = [slot for slot in slots if slot is not None]
        if not valid:
            raise CorruptError(
                f"{path} is damaged at byte 0: without it, nobody knows where the log ended",
                fix=salvage_fix(folder),
            )
        point = cls(folder, max(valid))
        point._durable = slots[0] == slots[1]
        point._older = 0 if slots[0] != max(valid) else 1
        return point

    @property
    def flushed(self) -> LogPosition | None:
        """Up to where the log is on disk, None if there is no file."""
        return None if self._slot is None else self._slot.flushed

    @property
    def first(self) -> int | None:
        """The base offset of the first segment, None if there is no file."""
        return None if self._slot is None else self._slot.first

    def advance(self, to: LogPosition) -> None:
        """Note a position that was flushed. The note itself is not synced."""
        with self._lock:
            before, older = self._slot, self._older
            if before is None or to <= before[0]:
                return
            slot = _new(_Slot, (to, before[1]))
            try:
                os.pwrite(self._open(), _encoded(slot), older * _SLOT_BYTES)
            except OSError:
                return  # the file then claims less, which is still true
            self._older = 1 - older
            self._slot, self._durable = slot, False

    def settle(self, flushed: LogPosition, first: int) -> None:
        """Put a flushed position and the first segment on disk, in both slots. Raises OSError."""
        with self._lock:
            slot = _Slot(flushed, first)
            if self._slot is None:
                replace_file(self._path, _encoded(slot) * _SLOTS)
            elif slot != self._slot or not self._durable:
                os.pwrite(self._open(), _encoded(slot) * _SLOTS, 0)
                _system_calls.sync(self._open())
            self._slot, self._durable = slot, True

    def close(self) -> None:
        """Close the file."""
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)

    def _open(self) -> int:
        if self._fd < 0:
            self._fd = os.open(self._path, os.O_WRONLY | os.O_CLOEXEC)
        return self._fd


def _encoded(slot: _Slot) -> bytes:
    (offset, base, position), first = slot
    body = _BODY % (offset, base, position, first)
    return (_LINE % (crc32c(body), body)).ljust(_SLOT_BYTES, b"\0")


def _decoded(data: bytes) -> _Slot | None:
    """Return a slot, None if it is damaged."""
    try:
        offset, base, position, first = map(int, data.partition(b"\n")[0].split()[2:])
    except ValueError:
        return None
    slot = _Slot(LogPosition(offset, base, position), first)
    return slot if data == _encoded(slot) else None
