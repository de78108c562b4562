"""A tier's counts in a memory-mapped file: cheap to add to, and intact after a SIGKILL.

Rules:

- A process has one file, and locks it while it lives. A file whose lock is free belongs to a dead
  process: `leftover_files` finds it, and the process that finds it publishes its counts.
- An increment is the snapshot of a slot minus its reported counts (`layout`). Its id is made of the
  file's name, the slot's number, and its sequence number. The snapshot is in the file before the
  increment is sent, so a crash in between sends the same increment again under the same id. The
  audit then counts it once.
- Every message of a producer takes two steps: `WindowCounts.attempt`, and `WindowCounts.report` at
  its delivery. One of a consumer takes `WindowCounts.consume`. They take no lock, and are compiled
  if there was a compiler (`tally`). If the interpreter has no global lock, producers call
  `CounterFile.attempt`, consumers call `count`, and every step takes the lock of the file.
- The numbers of attempts and of consumed messages are in the file at once. The number of
  deliveries, and the bytes, get there with `flush`, which the owner calls several times a second,
  and before anything reads them. A killed process therefore reports its last deliveries as
  unresolved, and lacks its last bytes.
- Every other step reads and writes `words` under the lock. A step that takes a slot away
  (`published`), or the words (`close`, a file that grows), first detaches the tallies of them.
- A file names the cluster that its counts are for: by addresses from the start, and by the id once
  a broker has answered (`name_cluster`).
- A forked child releases the parent's files at once: holding them would hide the parent's death.
- A full or read-only disk never stops the counting (`mapped_words`).
- The page cache keeps the counts: a killed process loses none, a power cut may lose some.
"""

from __future__ import annotations

import contextlib
import logging
import mmap
import os
import threading
import uuid
import weakref
from collections.abc import Iterator, Set
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from headworks._audit_counting import layout, window_of
from headworks._audit_counting.mapped_words import MappedWords
from headworks._audit_counting.outcomes import ATTEMPTED, OUTCOMES
from headworks._audit_counting.schema_use import (
    MAX_SCHEMAS,
    NO_SCHEMA,
    UNLISTED,
    SchemaIds,
)
from headworks._audit_counting.window_counts import WindowCounts
from headworks._kafka.cluster_identity import ClusterIdentity, unpacked
from headworks.errors import CorruptError, UsageError

_log = logging.getLogger("headworks.audit")
_INITIAL_SLOTS = 256
_MAX_SLOTS = 1 << 17
_SUFFIX = ".counts"
_WITHOUT_SCHEMA: Final = SchemaIds(NO_SCHEMA)


@dataclass(frozen=True, slots=True)
class PendingIncrement:
    """An increment that is in the file and must be published."""

    id: str
    topic: str
    window_start: int  # milliseconds since 1970 UTC
    counts: dict[str, int]  # by the name of the outcome; without zeros
    bytes: int
    slot: int  # the number of its slot
    ids: SchemaIds | None = None  # None: the schemas of its messages were not counted


class CounterFile:
    """The counts of this process, in a new file in `folder`; or, by `path`, those of a dead one.

    `cluster` is the cluster that a new file's counts are for. None: whichever publishes them.

    BlockingIOError if the process of `path` lives, FileNotFoundError if the file is gone,
    CorruptError if it is not a counter file.
    """

    def __init__(
        self, folder: Path, *, path: Path | None = None, cluster: ClusterIdentity | None = None
    ) -> None:
        # Guards `words` and all attributes below it.
        self.lock = threading.Lock()
        # The messages that were resolved and not delivered, by outcome; read without the lock.
        self.lost = [0] * len(OUTCOMES)
        # The counts that `published` noted, by outcome.
        self._published = [0] * len(OUTCOMES)
        # Whether the file is released; nothing is counted then.
        self.closed = False
        self.path = path or folder / f"{uuid.uuid4()}{_SUFFIX}"
        size = layout.file_size(_INITIAL_SLOTS) if path is None else None
        self._mapped = MappedWords(self.path, size)
        if path is None:
            packed = b"" if cluster is None else cluster.packed()
            layout.begin(self._memory, self.words, packed)
        elif self.words[0] not in (layout.MAGIC, layout.MAGIC_WITHOUT_CLUSTER):
            self.close()
            raise CorruptError(f"{self.path} is not a file of audit counts", fix="remove it")
        # The namespace of the ids of this file's increments.
        self._namespace = uuid.uuid5(uuid.NAMESPACE_URL, self.path.name)
        # The slots of this process that are taken, by topic, window, and schema ids.
        self._slots: dict[tuple[str, int, SchemaIds], WindowCounts] = {}
        # The pairs of schema ids that have slots of their own, by topic.
        self._listed: dict[str, set[SchemaIds]] = {}
        # The numbers of slots that were taken once and may be taken again.
        self._free: list[int] = []
        _open_files.add(self)

    @property
    def words(self) -> memoryview:
        """The words of the file; see `layout`."""
        return self._mapped.words

    @property
    def _memory(self) -> mmap.mmap:
        return self._mapped.memory

    @property
    def used(self) -> int:
        """The number of slots that were ever taken."""
        return self.words[1]

    @property
    def cluster(self) -> ClusterIdentity | None:
        """The cluster that the counts are for; None if the file names none."""
        with self.lock:
            packed = None if self.closed else layout.read_cluster(self._memory, self.words)
        return None if packed is None else unpacked(packed)

    def name_cluster(self, cluster: ClusterIdentity) -> None:
        """Name the cluster that the counts are for, unless an earlier release made the file."""
        with self.lock:
            if not self.closed and self.words[0] == layout.MAGIC:
                layout.write_cluster(self._memory, cluster.packed())

    def attempt(
        self, topic: str, timestamp: int, size: int, ids: SchemaIds = _WITHOUT_SCHEMA
    ) -> WindowCounts:
        """Count a message of `size` bytes as attempted; return the counts to resolve it in.

        While _MAX_SLOTS slots are in use, the messages of further windows are counted in window 0.
        UsageError if the file is closed.
        """
        window = window_of(timestamp)
        with self.lock:
            if self.closed:
                raise UsageError("the producer is closed", fix="send before close, or make another")
            ids = self._own_ids(topic, ids)
            slot = self._slots.get((topic, window, ids)) or self._take_slot(topic, window, ids)
            slot.add(ATTEMPTED, 1, size)
        return slot

    def flush(self) -> None:
        """Write all counts into the file."""
        with self.lock:
            if not self.closed:
                self._flush()

    def _flush(self) -> None:
        for slot in self._slots.values():
            slot.flush()

    def open_counts(
        self, topic: str, window: int, ids: SchemaIds = _WITHOUT_SCHEMA
    ) -> WindowCounts | None:
        """Return the counts in which a message is open; None if it was not counted here."""
        with self.lock:
            ids = self._own_ids(topic, ids)
            return self._slots.get((topic, window, ids)) or self._slots.get((topic, 0, ids))

    def count(
        self,
        topic: str,
        window: int,
        size: int,
        outcome: int,
        number: int = 1,
        ids: SchemaIds = _WITHOUT_SCHEMA,
    ) -> WindowCounts:
        """Count `number` messages, of `size` bytes together, whose outcome is known.

        ATTEMPTED opens messages. Another outcome, with 0 bytes, resolves them later. Return the
        counts, by which further messages of a group may be counted (`WindowCounts.consume`).
        """
        with self.lock:
            ids = self._own_ids(topic, ids)
            slot = self._slots.get((topic, window, ids)) or self._take_slot(topic, window, ids)
            slot.add(outcome, number, size)
        return slot

    def _own_ids(self, topic: str, ids: SchemaIds) -> SchemaIds:
        """Return the ids of the slot: UNLISTED beyond MAX_SCHEMAS pairs of a topic."""
        listed = self._listed.setdefault(topic, set())
        if ids in listed:
            return ids
        if len(listed) >= MAX_SCHEMAS:
            return UNLISTED
        listed.add(ids)
        return ids

    def _take_slot(self, topic: str, window: int, ids: SchemaIds) -> WindowCounts:
        if not self._free and self.used >= _MAX_SLOTS:
            window = 0
            if (topic, window, ids) in self._slots:
                return self._slots[topic, window, ids]
        number = self._free.pop() if self._free else self._new_number()
        base = layout.base_of(number)
        layout.clear_slot(self._memory, self.words, base, topic, window, ids)
        slot = self._slots[topic, window, ids] = WindowCounts(self, base, window)
        return slot

    def _new_number(self) -> int:
        number = self.used
        if layout.base_of(number + 1) > len(self.words):
            before, memory = self.words, self._memory
            for slot in self._slots.values():
                slot.attach(None)  # first, so that nothing is counted while the words move
            self._mapped.grow(layout.file_size(number * 2))
            for slot in self._slots.values():
                slot.attach(self.words)
            before.release()
            memory.close()
        self.words[1] = number + 1
        return number

    def increments(self, *, owner_died: bool = False) -> Iterator[PendingIncrement]:
        """Yield the increments that are not published; the caller reports each by `published`.

        With `owner_died`, open messages count as `unresolved`.
        """
        self.flush()
        with self.lock:
            used = 0 if self.closed else self.used
        for number in range(used):
            with self.lock:
                if self.closed:
                    return
                named = self.words[layout.base_of(number) + layout.LENGTH]
                increment = self._pending(number, owner_died) if named else None
            if increment is not None:
                yield increment

    def _pending(self, number: int, owner_died: bool) -> PendingIncrement | None:
        base, words = layout.base_of(number), self.words
        counts = layout.snapshot_increment(words, base, owner_died=owner_died)
        if counts is None:
            return None
        return PendingIncrement(
            id=str(uuid.uuid5(self._namespace, f"{number}:{words[base + layout.SEQUENCE]}")),
            topic=layout.slot_name(self._memory, words, base),
            window_start=layout.slot_window(words, base),
            counts={name: n for name, n in zip(OUTCOMES, counts, strict=False) if n},
            bytes=counts[layout.BYTES],
            slot=number,
            ids=layout.slot_ids(words, base),
        )

    def published(self, increment: PendingIncrement) -> None:
        """Note that an increment is published, and free its slot if no message of it is open."""
        base = layout.base_of(increment.slot)
        with self.lock:
            if self.closed:
                return
            words = self.words
            layout.mark_reported(words, base)
            for i, name in enumerate(OUTCOMES):
                self._published[i] += increment.counts.get(name, 0)
            key = (increment.topic, increment.window_start, increment.ids or UNLISTED)
            slot = self._slots.get(key)
            if slot is not None:
                slot.attach(None)  # first, so that no message is counted from here on
                slot.flush()
            if layout.is_settled(words, base):
                words[base + layout.LENGTH] = 0
                self._slots.pop(key, None)
                self._free.append(increment.slot)
            elif slot is not None:
                slot.attach(words)

    def open_messages(self) -> int:
        """Return how many messages are attempted and not resolved."""
        with self.lock:
            self._flush()
            return sum(layout.open_messages(self.words, base) for base in self._bases())

    def settled(self) -> bool:
        """Return whether every count is resolved and published, so that the file may be removed.

        False once the file is closed: a publishing thread may outlast that.
        """
        with self.lock:
            if self.closed:
                return False
            self._flush()
            return all(layout.is_settled(self.words, base) for base in self._bases())

    def unpublished(self) -> dict[str, int]:
        """Return the counts that are not published, by outcome."""
        with self.lock:
            return dict(zip(OUTCOMES, self._unpublished(), strict=True))

    def totals(self) -> list[int]:
        """Return all counts of this process, published or not, in the order of OUTCOMES."""
        with self.lock:
            return [a + b for a, b in zip(self._published, self._unpublished(), strict=True)]

    def _unpublished(self) -> list[int]:
        self._flush()
        return [
            sum(layout.unpublished(self.words, base, i) for base in self._bases())
            for i in range(len(OUTCOMES))
        ]

    def close(self, *, remove: bool = False) -> None:
        """Release the file, or remove it."""
        with self.lock:
            if self.closed:
                return
            self._flush()
            if remove:
                with contextlib.suppress(OSError):  # all of it is published
                    self.path.unlink(missing_ok=True)
            self._release()

    def _release(self) -> None:
        for slot in self._slots.values():
            slot.attach(None)
        self.closed = True
        self._mapped.release()

    def _after_fork(self) -> None:
        """Release the file in a forked child, in which nobody may hold the old lock any more."""
        self.lock = threading.Lock()
        if not self.closed:
            self._release()

    def _bases(self) -> Iterator[int]:
        for number in range(self.used):
            base = layout.base_of(number)
            if self.words[base + layout.LENGTH]:
                yield base


_open_files: weakref.WeakSet[CounterFile] = weakref.WeakSet()


def _release_after_fork() -> None:
    for file in list(_open_files):
        file._after_fork()
    _open_files.clear()


os.register_at_fork(after_in_child=_release_after_fork)


def counter_paths(folder: Path) -> set[Path]:
    """Return the counter files in `folder`, of processes that live or are dead.

    A folder that is gone, or that this process may not read, has none.
    """
    try:
        names = os.listdir(folder)
    except (FileNotFoundError, NotADirectoryError, PermissionError):
        return set()
    return {folder / name for name in names if name.endswith(_SUFFIX)}


def leftover_files(folder: Path, *, besides: Set[Path] = frozenset()) -> Iterator[CounterFile]:
    """Open and lock the counter files of dead processes in `folder`, and yield each.

    The paths `besides` are left alone.
    """
    for path in sorted(counter_paths(folder) - besides):
        try:
            file = CounterFile(folder, path=path)
        except (BlockingIOError, FileNotFoundError):
            continue  # its process lives, or another one has just published it
        except (CorruptError, ValueError):
            continue  # the process died before it counted anything
        except OSError as error:
            _log.debug("%s waits for a disk that takes it: %s", path, error)
            continue
        yield file
