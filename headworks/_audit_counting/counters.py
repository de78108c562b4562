"""A tier's counts in a memory-mapped file: cheap to add to, and there after a SIGKILL.

Rules:

- One file per process, locked while the process lives. A file whose lock is free belongs to a
  dead process: `leftover_files` finds it, and whoever does publishes what it holds.
- A slot holds the counts of one topic and window three times: `current`, `pending` (the snapshot
  that is being published) and `reported` (what has been published). An increment is
  pending - reported, under an id made of the file, the slot's number and its sequence number.
  Because the snapshot is in the file before it is sent, a crash in between sends the same
  increment again under the same id, and the audit counts it once.
- The two steps that every message takes (`Slot.attempt`, into the slot of its topic's last message,
  and `Slot.report` of its delivery) take no lock, and are compiled where there is a compiler: see
  `tally`. Where the interpreter has no lock of its own, nothing is remembered in `latest`, and
  every step takes ours.
- Of the three counts that a message changes, what was attempted is in the map at once. What was
  delivered, and bytes, come there with `flush`, which their owner calls some twenty times a
  second, and before anything reads them: a killed process's last deliveries count as unresolved, as
  do those that it had not been told of, and its last bytes are missing.
- Everything else reads `words` under the lock. Who takes a slot away (`published`), or the words
  (`close`, a file that grows), first detaches the tallies that would go on counting there.
- A forked child lets go of the parent's files at once: holding them would hide the parent's death.
- What survives is what the page cache holds: a killed process loses nothing, a power cut may.

Layout, in unsigned 64-bit words: a header (magic, slots used), then slots of SLOT_WORDS words:
window, sequence, pending flag, length of the topic's name, its bytes, then the three counts.
"""

from __future__ import annotations

import fcntl
import mmap
import os
import sys
import threading
import uuid
import weakref
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from confluent_kafka import KafkaError

from headworks._audit_counting import WINDOW_MS, window_of
from headworks._audit_counting.tally import Report, Tally
from headworks.errors import CorruptError, UsageError

__all__ = ["OUTCOMES", "CounterFile", "PendingIncrement", "WindowCounts", "leftover_files"]

OUTCOMES: Final = (
    "attempted",
    "delivered",
    "failed",
    "dropped:queue_full",
    "dropped:too_large",
    "dropped:broker_error",
    "dropped:timed_out",
    "dropped:closed",
    "unresolved",
    "mirrored",
    "consumed",
    "skipped",
    "resent",
)
ATTEMPTED, DELIVERED, FAILED, QUEUE_FULL, TOO_LARGE, BROKER_ERROR, TIMED_OUT, CLOSED = range(8)
UNRESOLVED, MIRRORED, CONSUMED, SKIPPED, RESENT = 8, 9, 10, 11, 12
_BYTES = len(OUTCOMES)
_COUNTS = len(OUTCOMES) + 1
_TOPIC_WORDS = 32  # a topic's name has at most 249 bytes
_WINDOW, _SEQUENCE, _PENDING, _LENGTH, _TOPIC = 0, 1, 2, 3, 4
_CURRENT = _TOPIC + _TOPIC_WORDS
_SNAPSHOT = _CURRENT + _COUNTS
_REPORTED = _SNAPSHOT + _COUNTS
SLOT_WORDS: Final = _REPORTED + _COUNTS
_MAGIC = int.from_bytes(b"HWAUDIT5", "little")
_MASK = (1 << 64) - 1
_HEADER_WORDS = 2
_INITIAL_SLOTS = 256
_MAX_SLOTS = 1 << 17
_SUFFIX = ".counts"
_OUTCOME_OF_ERROR: Final = {
    KafkaError._MSG_TIMED_OUT: TIMED_OUT,
    KafkaError._PURGE_QUEUE: CLOSED,
    KafkaError._PURGE_INFLIGHT: CLOSED,
    KafkaError.MSG_SIZE_TOO_LARGE: TOO_LARGE,
}

_HAS_GIL: Final = bool(getattr(sys, "_is_gil_enabled", lambda: True)())


@dataclass(frozen=True, slots=True)
class PendingIncrement:
    """An increment that is written down and must be published: its identity and its counts."""

    id: str
    topic: str
    window_start: int
    counts: dict[str, int]
    bytes: int
    slot: int


class WindowCounts:
    """The counts of one topic and window.

    `attempt` counts a message of a time and size, if it belongs here and the file is open: False if
    `CounterFile.attempt` must be asked. `report` is the delivery callback of its messages; it is
    valid while one of them is unresolved: a slot with nothing open may be reused.
    """

    __slots__ = ("_at", "_file", "_tally", "attempt", "report")

    def __init__(self, file: CounterFile, base: int, window: int) -> None:
        self._file = file
        self._at = base + _CURRENT
        self._tally = Tally(self._at, window, window + WINDOW_MS, self._report_locked)
        self._tally.attach(file.words)
        self.attempt = self._tally.attempt
        self.report: Report = self._tally.report if _HAS_GIL else self._report_locked

    def resolve(self, outcome: int) -> None:
        """Count what became of a message; `outcome` indexes OUTCOMES."""
        with self._file.lock:
            if not self._file.closed:  # else its fate is open: the next process publishes it so
                self.add(outcome, 1, 0)

    def add(self, outcome: int, number: int, size: int) -> None:
        """Add messages and bytes; the caller holds the lock."""
        words, tally = self._file.words, self._tally
        if outcome == ATTEMPTED:  # without a call, as `tally` asks; so for DELIVERED, and for bytes
            words[self._at] = tally.attempted = tally.attempted + number
        elif outcome == DELIVERED:
            words[self._at + DELIVERED] = tally.delivered = tally.delivered + number
        else:
            words[self._at + outcome] += number
        words[self._at + _BYTES] = tally.bytes = tally.bytes + size

    def flush(self) -> None:
        """Put into the file what is known here alone; the caller holds the lock."""
        words = self._file.words
        words[self._at + DELIVERED] = self._tally.delivered
        words[self._at + _BYTES] = self._tally.bytes

    def attach(self, words: memoryview | None) -> None:
        """Count in these words from now on, or do not (None); the caller holds the lock."""
        self._tally.attach(words)

    def _report_locked(self, error: KafkaError | None, _message: object) -> None:
        self.resolve(DELIVERED if error is None else _OUTCOME_OF_ERROR.get(error.code(), FAILED))


class CounterFile:
    """The counts of this process, in a new file in `folder`; or, by `path`, a dead one's."""

    def __init__(self, folder: Path, *, path: Path | None = None) -> None:
        self.lock = threading.Lock()
        self.closed = False
        self.path = path or folder / f"{uuid.uuid4()}{_SUFFIX}"
        folder.mkdir(parents=True, exist_ok=True)
        self._descriptor = os.open(
            self.path, os.O_RDWR | (os.O_CREAT if path is None else 0), 0o600
        )
        try:
            # Others who look for leftovers may hold a new file for a moment.
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | (0 if path is None else fcntl.LOCK_NB))
            if path is None:
                os.ftruncate(self._descriptor, _size_of(_INITIAL_SLOTS))
            self._map_file()
        except BaseException:
            os.close(self._descriptor)
            raise
        if path is None:
            self.words[0] = _MAGIC
        elif self.words[0] != _MAGIC:
            self.close()
            raise CorruptError(f"{self.path} is not a file of audit counts", fix="remove it")
        self._namespace = uuid.uuid5(uuid.NAMESPACE_URL, self.path.name)
        self._slots: dict[tuple[str, int], WindowCounts] = {}
        self.latest: dict[str, WindowCounts] = {}
        self._free: list[int] = []
        _open_files.add(self)

    @property
    def used(self) -> int:
        """How many slots have ever been taken."""
        return self.words[1]

    def attempt(self, topic: str, timestamp: int, size: int) -> WindowCounts:
        """Count a message of `size` bytes that was handed over; its slot, to say what became of it.

        When very many windows are open at once, further ones are counted together in window 0.
        """
        window = window_of(timestamp)
        with self.lock:
            if self.closed:
                raise UsageError("the producer is closed", fix="send before close, or make another")
            slot = self._slots.get((topic, window)) or self._take_slot(topic, window)
            slot.add(ATTEMPTED, 1, size)
            if _HAS_GIL:
                self.latest[topic] = slot
        return slot

    def flush(self) -> None:
        """Have all counts in the file, whatever becomes of this process."""
        with self.lock:
            if not self.closed:
                self._flush()

    def _flush(self) -> None:
        for slot in self._slots.values():
            slot.flush()

    def open_slot(self, topic: str, window: int) -> WindowCounts | None:
        """The slot in which a message was counted that is not resolved yet."""
        with self.lock:
            return self._slots.get((topic, window)) or self._slots.get((topic, 0))

    def count(self, topic: str, window: int, size: int, outcome: int, number: int = 1) -> None:
        """Count `number` messages of `size` bytes together whose outcome is known at once.

        For many at a time, ATTEMPTED opens them and another outcome, with 0 bytes, resolves them.
        """
        with self.lock:
            slot = self._slots.get((topic, window)) or self._take_slot(topic, window)
            slot.add(outcome, number, size)

    def _take_slot(self, topic: str, window: int) -> WindowCounts:
        if not self._free and self.used >= _MAX_SLOTS:
            window = 0
            if (topic, window) in self._slots:
                return self._slots[topic, window]
        number = self._free.pop() if self._free else self._new_number()
        base = _base_of(number)
        name = topic.encode()
        for i in range(_COUNTS):
            self.words[base + _CURRENT + i] = 0
            self.words[base + _SNAPSHOT + i] = self.words[base + _REPORTED + i] = 0
        self.words[base + _WINDOW] = window & _MASK
        start = (base + _TOPIC) * 8
        self._memory[start : start + len(name)] = name
        self.words[base + _LENGTH] = len(name)  # last: a slot without a name counts nothing
        slot = self._slots[topic, window] = WindowCounts(self, base, window)
        return slot

    def _new_number(self) -> int:
        number = self.used
        if number >= (len(self.words) - _HEADER_WORDS) // SLOT_WORDS:
            before, memory = self.words, self._memory
            os.ftruncate(self._descriptor, _size_of(number * 2))
            self._map_file()
            for slot in self._slots.values():
                slot.attach(self.words)
            before.release()
            memory.close()
        self.words[1] = number + 1
        return number

    def increments(self, *, owner_died: bool = False) -> Iterator[PendingIncrement]:
        """Write down and yield what has not been published; call `published` for each that is.

        With `owner_died`, messages whose fate was open count as `unresolved`.
        """
        self.flush()
        with self.lock:
            used = 0 if self.closed else self.used
        for number in range(used):
            with self.lock:
                if self.closed:
                    return
                named = self.words[_base_of(number) + _LENGTH]
                increment = self._pending(number, owner_died) if named else None
            if increment is not None:
                yield increment

    def _pending(self, number: int, owner_died: bool) -> PendingIncrement | None:
        base, words = _base_of(number), self.words
        if not words[base + _PENDING]:
            if owner_died:
                words[base + _CURRENT + UNRESOLVED] += self._open_messages(base)
            for i in range(_COUNTS):
                words[base + _SNAPSHOT + i] = words[base + _CURRENT + i]
            words[base + _PENDING] = 1
        counts = [words[base + _SNAPSHOT + i] - words[base + _REPORTED + i] for i in range(_COUNTS)]
        if not any(counts):
            words[base + _PENDING] = 0
            return None
        topic, window = self._topic_and_window(base)
        return PendingIncrement(
            id=str(uuid.uuid5(self._namespace, f"{number}:{words[base + _SEQUENCE]}")),
            topic=topic,
            window_start=window,
            counts={name: n for name, n in zip(OUTCOMES, counts, strict=False) if n},
            bytes=counts[_BYTES],
            slot=number,
        )

    def published(self, increment: PendingIncrement) -> None:
        """Take note that an increment was published, and free its slot if nothing is open in it.

        The order matters: killed before the sequence moves, this sends the increment again under
        the id it had; killed after, there is nothing left to send.
        """
        base = _base_of(increment.slot)
        with self.lock:
            if self.closed:
                return
            words = self.words
            for i in range(_COUNTS):
                words[base + _REPORTED + i] = words[base + _SNAPSHOT + i]
            words[base + _SEQUENCE] += 1
            words[base + _PENDING] = 0
            slot = self._slots.get((increment.topic, increment.window_start))
            if slot is not None:
                slot.attach(None)  # before it is asked whether it is in use
                slot.flush()
            if self._is_settled(base):
                words[base + _LENGTH] = 0
                self._slots.pop((increment.topic, increment.window_start), None)
                self._free.append(increment.slot)
            elif slot is not None:
                slot.attach(words)

    def open_messages(self) -> int:
        """How many messages were handed over whose fate is not known yet."""
        with self.lock:
            self._flush()
            return sum(map(self._open_messages, self._bases()))

    def settled(self) -> bool:
        """Whether everything counted is resolved and published: the file may go."""
        with self.lock:
            self._flush()
            return all(self._is_settled(base) for base in self._bases())

    def unpublished(self) -> dict[str, int]:
        """What has been counted and not been published, by outcome."""
        with self.lock:
            self._flush()
            return {
                name: sum(
                    self.words[base + _CURRENT + i] - self.words[base + _REPORTED + i]
                    for base in self._bases()
                )
                for i, name in enumerate(OUTCOMES)
            }

    def close(self, *, remove: bool = False) -> None:
        """Let go of the file, or remove it."""
        with self.lock:
            if self.closed:
                return
            self._flush()
            if remove:
                self.path.unlink(missing_ok=True)
            self._release()

    def _release(self) -> None:
        for slot in self._slots.values():
            slot.attach(None)
        self.latest.clear()
        self.closed = True
        self.words.release()
        self._memory.close()
        os.close(self._descriptor)

    def _after_fork(self) -> None:
        """In a forked child; a thread that did not survive the fork may have held the lock."""
        self.lock = threading.Lock()
        if not self.closed:
            self._release()

    def _bases(self) -> Iterator[int]:
        for number in range(self.used):
            base = _base_of(number)
            if self.words[base + _LENGTH]:
                yield base

    def _is_settled(self, base: int) -> bool:
        words = self.words
        return not self._open_messages(base) and all(
            words[base + _CURRENT + i] == words[base + _REPORTED + i] for i in range(_COUNTS)
        )

    def _open_messages(self, base: int) -> int:
        counts = [self.words[base + _CURRENT + i] for i in range(len(OUTCOMES))]
        return counts[ATTEMPTED] - sum(counts[DELIVERED:CONSUMED])

    def _topic_and_window(self, base: int) -> tuple[str, int]:
        start, length = (base + _TOPIC) * 8, self.words[base + _LENGTH]
        window = self.words[base + _WINDOW]
        name = self._memory[start : start + length].decode()
        return name, window - _MASK - 1 if window >> 63 else window

    def _map_file(self) -> None:
        self._memory = mmap.mmap(self._descriptor, 0)
        self.words = memoryview(self._memory).cast("Q")


_open_files: weakref.WeakSet[CounterFile] = weakref.WeakSet()


def _release_after_fork() -> None:
    for file in list(_open_files):
        file._after_fork()
    _open_files.clear()


os.register_at_fork(after_in_child=_release_after_fork)


def leftover_files(folder: Path) -> Iterator[CounterFile]:
    """The counter files of dead processes in `folder`, opened and locked, one by one."""
    for path in sorted(folder.glob(f"*{_SUFFIX}")):
        try:
            file = CounterFile(folder, path=path)
        except (BlockingIOError, FileNotFoundError):
            continue  # its process lives, or another has just published it
        except (CorruptError, ValueError):
            continue  # died before it counted anything
        yield file


def _base_of(number: int) -> int:
    return _HEADER_WORDS + number * SLOT_WORDS


def _size_of(slots: int) -> int:
    return 8 * (_HEADER_WORDS + slots * SLOT_WORDS)
