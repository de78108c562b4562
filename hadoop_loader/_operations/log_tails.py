"""The last messages of a partition, as a number and a digest, to compare two clusters by them.

Rules: a tail is read once, whatever the number of its offsets. Memory does not grow with the
messages. A digest covers what a mirror keeps: timestamp, key, and value. The last offsets of a log
may hold no message (transaction markers, aborted or compacted messages): none is taken for one.
"""

from __future__ import annotations

import hashlib
from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from hadoop_loader._fetch.kafka_log import KafkaFetcher, KafkaLog
from hadoop_loader._fetch.messages import FetchedMessage
from hadoop_loader._fetch.ranges import FetchRange, Watermarks
from headworks._kafka.client_properties import client_properties
from headworks.groups import PartitionOffset, TopicPartition

MOST_LOOKED_BACK = 1_000_000  # offsets before an end that are searched for a message
_DIGEST_BYTES = 16
_FIRST_LOOK, _FARTHER = 10, 10  # offsets that are searched first, and times more in the next look


class LogTail(NamedTuple):
    """The messages from an offset to the end of its partition."""

    messages: int
    digest: bytes


def log_tails(
    bootstrap: str, starts: Iterable[PartitionOffset]
) -> Mapping[PartitionOffset, LogTail]:
    """Return the tails that begin at these offsets, without those that hold no message.

    Raises UnreachableError, or DamagedBatchError for a batch with a wrong CRC.
    """
    by_partition: dict[TopicPartition, list[PartitionOffset]] = defaultdict(list)
    for start in set(starts):
        by_partition[TopicPartition(start.topic, start.partition)].append(start)
    asked: dict[str, list[int]] = defaultdict(list)
    for place in by_partition:
        asked[place.topic].append(place.partition)
    client = client_properties(bootstrap)
    ends = KafkaLog(client).watermarks(asked)
    ranges = [
        FetchRange(*place, first, mark.high)
        for place, found in by_partition.items()
        if (mark := ends[place.topic].get(place.partition))
        and (first := min(start.offset for start in found)) < mark.high
    ]
    counts: dict[PartitionOffset, int] = defaultdict(int)
    digests = {
        start: hashlib.blake2b(digest_size=_DIGEST_BYTES)
        for found in by_partition.values()
        for start in found
    }
    for topic, messages in KafkaFetcher(client).fetch(ranges) if ranges else ():
        for message in messages:
            piece = _digest(message)
            for start in by_partition[TopicPartition(topic, message.partition)]:
                if start.offset <= message.offset:
                    digests[start].update(piece)
                    counts[start] += 1
    return {start: LogTail(n, digests[start].digest()) for start, n in counts.items()}


def last_messages(
    bootstrap: str, logs: Mapping[TopicPartition, Watermarks]
) -> Mapping[TopicPartition, PartitionOffset | None]:
    """Return the last message of each of these logs, and None for a log without messages.

    A log whose last `MOST_LOOKED_BACK` offsets hold no message is left out, if it has more of them.
    Raises UnreachableError, or DamagedBatchError for a batch with a wrong CRC.
    """
    found: dict[TopicPartition, PartitionOffset | None] = {}
    fetcher, look = KafkaFetcher(client_properties(bootstrap)), min(_FIRST_LOOK, MOST_LOOKED_BACK)
    ends = {place: log.high for place, log in logs.items()}  # where nothing was searched yet
    while ends:
        starts = {place: max(logs[place].low, logs[place].high - look) for place in ends}
        ranges = [FetchRange(*p, start, ends[p]) for p, start in starts.items() if start < ends[p]]
        for topic, messages in fetcher.fetch(ranges) if ranges else ():
            for message in messages:
                place = TopicPartition(topic, message.partition)
                found[place] = PartitionOffset(*place, message.offset)  # they come in order
        for place, start in starts.items():
            if start == logs[place].low:
                found.setdefault(place, None)
        if look == MOST_LOOKED_BACK:
            break
        ends = {place: start for place, start in starts.items() if place not in found}
        look = min(look * _FARTHER, MOST_LOOKED_BACK)
    return found


def _digest(message: FetchedMessage) -> bytes:
    found = hashlib.blake2b(message.timestamp.to_bytes(8, "big"), digest_size=_DIGEST_BYTES)
    for piece in (message.key, message.value):
        found.update((-1 if piece is None else len(piece)).to_bytes(8, "big", signed=True))
        found.update(piece or b"")
    return found.digest()
