"""The layout of a counter file: what each word means, and what follows from the words of a slot.

The file is an array of unsigned 64-bit words: a header (magic number, slots ever used), then slots
of SLOT_WORDS words each. The first slot has no name and no counts: it holds the cluster that the
counts are for. In files of MAGIC_WITHOUT_CLUSTER it is a slot like the others. A slot holds the
counts of one topic, window, and pair of schema ids three times: CURRENT, SNAPSHOT (being
published), and REPORTED (published). Each of the three is one word per outcome, and one for bytes.

The id that messages were written with is the upper half of LENGTH. That of their reader is in the
last 4 bytes of the name, which has at most 249 of 256.

Rules: pure functions over the words. The caller holds the lock of the file.
"""

from __future__ import annotations

from mmap import mmap
from typing import Final

from headworks._audit_counting.outcomes import ATTEMPTED, CONSUMED, DELIVERED, OUTCOMES, UNRESOLVED
from headworks._audit_counting.schema_use import SchemaIds
from headworks._kafka.cluster_identity import PACKED_BYTES

MAGIC: Final = int.from_bytes(b"HWAUDIT8", "little")
MAGIC_WITHOUT_CLUSTER: Final = int.from_bytes(b"HWAUDIT7", "little")
HEADER_WORDS: Final = 2
_TOPIC_WORDS = 32  # a topic's name has at most 249 bytes
_COUNTS = len(OUTCOMES) + 1
BYTES: Final = len(OUTCOMES)  # the index of the bytes among the counts
# Offsets in a slot, in words.
_WINDOW = 0  # the start of the window, as a two's complement
SEQUENCE: Final = 1  # the number of increments that were published
PENDING: Final = 2  # 1 while SNAPSHOT is being published
LENGTH: Final = 3  # the length of the topic's name in bytes, and an id; 0: the slot is free
_TOPIC = 4
CURRENT: Final = _TOPIC + _TOPIC_WORDS
_SNAPSHOT = CURRENT + _COUNTS
_REPORTED = _SNAPSHOT + _COUNTS
SLOT_WORDS: Final = _REPORTED + _COUNTS
_WORD_BYTES = 8
_MASK = (1 << 64) - 1
_ID_BITS = 32
_LOW = (1 << _ID_BITS) - 1
_READER = _TOPIC + _TOPIC_WORDS - 1  # the word whose upper half is the reader's id
_CLUSTER_AT = _WORD_BYTES * (HEADER_WORDS + _TOPIC)  # of the identity in the first slot, in bytes


def base_of(number: int) -> int:
    """Return the index of a slot's first word."""
    return HEADER_WORDS + number * SLOT_WORDS


def file_size(slots: int) -> int:
    """Return the size in bytes of a file of so many slots."""
    return _WORD_BYTES * base_of(slots)


def begin(memory: mmap, words: memoryview, cluster: bytes) -> None:
    """Write the header of a new file, and the packed identity of the cluster (`ClusterIdentity`).

    The magic number is written last, because a file without it was never used.
    """
    write_cluster(memory, cluster)
    words[1] = 1
    words[0] = MAGIC


def write_cluster(memory: mmap, cluster: bytes) -> None:
    """Write the packed identity of the cluster that the counts are for."""
    memory[_CLUSTER_AT : _CLUSTER_AT + len(cluster)] = cluster


def read_cluster(memory: mmap, words: memoryview) -> bytes | None:
    """Return the packed identity of the cluster; None in a file of an earlier release."""
    return memory[_CLUSTER_AT : _CLUSTER_AT + PACKED_BYTES] if words[0] == MAGIC else None


def clear_slot(
    memory: mmap, words: memoryview, base: int, topic: str, window: int, ids: SchemaIds
) -> None:
    """Take a free slot for a topic, a window, and schema ids, with counts of 0.

    `memory` holds the same bytes as `words`. The length of the name is written last, because a slot
    without a name counts nothing.
    """
    name = topic.encode()
    for i in range(_COUNTS):
        words[base + CURRENT + i] = 0
        words[base + _SNAPSHOT + i] = words[base + _REPORTED + i] = 0
    words[base + _WINDOW] = window & _MASK
    start = (base + _TOPIC) * _WORD_BYTES
    memory[start : start + len(name)] = name
    written, read = ids.packed()
    words[base + _READER] = words[base + _READER] & _LOW | read << _ID_BITS
    words[base + LENGTH] = len(name) | written << _ID_BITS


def slot_name(memory: mmap, words: memoryview, base: int) -> str:
    """Return the topic of a slot."""
    start = (base + _TOPIC) * _WORD_BYTES
    return memory[start : start + (words[base + LENGTH] & _LOW)].decode()


def slot_ids(words: memoryview, base: int) -> SchemaIds | None:
    """Return the schema ids of a slot; None if the schemas of its messages were not counted."""
    return SchemaIds.unpacked(words[base + LENGTH] >> _ID_BITS, words[base + _READER] >> _ID_BITS)


def slot_window(words: memoryview, base: int) -> int:
    """Return the start of a slot's window, in milliseconds since 1970 UTC."""
    window: int = words[base + _WINDOW]
    return window - _MASK - 1 if window >> 63 else window


def open_messages(words: memoryview, base: int) -> int:
    """Return how many messages of a slot are attempted and not resolved."""
    counts = [words[base + CURRENT + i] for i in range(len(OUTCOMES))]
    resolved: int = sum(counts[DELIVERED:CONSUMED])
    return counts[ATTEMPTED] - resolved


def unpublished(words: memoryview, base: int, outcome: int) -> int:
    """Return what a slot counted of an outcome since the last increment was published."""
    count: int = words[base + CURRENT + outcome] - words[base + _REPORTED + outcome]
    return count


def is_settled(words: memoryview, base: int) -> bool:
    """Return whether every message of a slot is resolved and every count is published."""
    return not open_messages(words, base) and not any(
        unpublished(words, base, i) for i in range(_COUNTS)
    )


def snapshot_increment(words: memoryview, base: int, *, owner_died: bool) -> list[int] | None:
    """Return the increment to publish, one number per outcome and the bytes; None if it is empty.

    An increment that is pending already is returned as it is. Otherwise the current counts become
    the snapshot. With `owner_died`, open messages count as `unresolved`.
    """
    if not words[base + PENDING]:
        if owner_died:
            words[base + CURRENT + UNRESOLVED] += open_messages(words, base)
        for i in range(_COUNTS):
            words[base + _SNAPSHOT + i] = words[base + CURRENT + i]
        words[base + PENDING] = 1
    counts = [words[base + _SNAPSHOT + i] - words[base + _REPORTED + i] for i in range(_COUNTS)]
    if any(counts):
        return counts
    words[base + PENDING] = 0
    return None


def mark_reported(words: memoryview, base: int) -> None:
    """Note that the pending increment of a slot is published.

    The order matters. If the process is killed before the sequence number moves, the increment is
    sent again under the id it had. If it is killed after that, nothing is left to send.
    """
    for i in range(_COUNTS):
        words[base + _REPORTED + i] = words[base + _SNAPSHOT + i]
    words[base + SEQUENCE] += 1
    words[base + PENDING] = 0
