"""Messages that validation refuses, in the dead-letter topic of their topic.

With `headworks.schema.validation.mode=dead-letter` the broker stores the good records of a batch.
It writes the others, byte for byte, to TOPIC.dead-letter, with headers that name their place and
the reason. A consumer's dead letters have the same headers, and a group beside them.

Rules: the producer is answered when both are written, and with acks=all flushed. A retry may write
dead letters again: at least once. Offsets, sequences, and order of the good records stay; a dead
letter leaves a gap, as compaction does.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from headworks._broker.handlers.node import Node
from headworks._broker.topics import HostedPartition
from headworks._kafka.dead_letters import DEAD_LETTER_HEADER, DEAD_LETTER_SUFFIX
from headworks._kafka.error_codes import ErrorCode, refused
from headworks._kafka.records import Batch, Codec, Record, encode_batch
from headworks._kafka.records.record import parse_records
from headworks._kafka.records.rewrite import empty_batch, parse_raw_records, rebuild_batch
from headworks.errors import HeadworksError

_BATCH_BYTES: Final = 512 << 10  # of keys and values; a larger message is a batch of its own


@dataclass(frozen=True, slots=True)
class DeadLetters:
    """The refused records of one batch; `reasons` are by number in the batch."""

    source: HostedPartition
    records: tuple[Record, ...]  # in the order of the batch; offsets are numbers in it
    reasons: Mapping[int, str]
    codec: Codec

    @property
    def topic(self) -> str:
        """The topic that they are written to."""
        return self.source.topic + DEAD_LETTER_SUFFIX

    def batches(self, base_offset: int) -> Iterator[bytearray]:
        """Yield the batches to write; `base_offset` is that of the batch with the good records."""
        taken, size = list[Record](), 0
        for record in self.records:
            if taken and size > _BATCH_BYTES:
                yield bytearray(encode_batch(taken, codec=self.codec))
                taken, size = [], 0
            taken.append(record._replace(headers=record.headers + self._why(record, base_offset)))
            size += len(record.key or b"") + len(record.value or b"")
        yield bytearray(encode_batch(taken, codec=self.codec))

    def _why(self, record: Record, base_offset: int) -> tuple[tuple[str, bytes], ...]:
        facts = {
            "topic": self.source.topic,
            "partition": self.source.index,
            "offset": base_offset + record.offset,
            "reason": self.reasons[record.offset],
        }
        return tuple(
            (DEAD_LETTER_HEADER + name, str(fact).encode()) for name, fact in facts.items()
        )


def separate(
    source: HostedPartition, batch: Batch, data: bytes, bad: Mapping[int, str]
) -> tuple[bytearray, DeadLetters]:
    """Return the batch without the `bad` records, which are by number, and these as dead letters.

    `data` is the `record_data` of the batch. Raises InvalidBatchError for records without sense.
    """
    batch = batch._replace(base_offset=0)
    good = [raw for raw in parse_raw_records(data, batch) if raw.offset not in bad]
    kept = rebuild_batch(batch, good, None) if good else empty_batch(batch)
    refused = tuple(record for record in parse_records(data, batch) if record.offset in bad)
    return bytearray(kept), DeadLetters(source, refused, bad, Codec(batch.codec))


def target_partition(node: Node, letters: DeadLetters) -> HostedPartition:
    """Return the partition for dead letters, one that this broker leads; RefusedError if none."""
    topic = node.hosted.topics.get(letters.topic)
    if topic is not None and topic.partitions:
        led = sorted(topic.partitions)
        return topic.partitions[led[letters.source.index % len(led)]]
    number, reason = next(iter(letters.reasons.items()))
    raise refused(
        ErrorCode.NOT_ENOUGH_REPLICAS,
        f"record {number} of the batch: {reason}. It has no place: this broker leads no partition"
        f" of {letters.topic}; create that topic with a partition on each broker",
    )


async def create_missing_topic(node: Node, name: str) -> None:
    """Create a topic for dead letters. A failure is logged; the batches for it are rejected."""
    if name in node.hosted.topics:
        return
    try:
        await node.topic_changes.create(name, node.default_partitions, {})
    except HeadworksError as error:
        if name not in node.hosted.topics:  # another request may have created it meanwhile
            node.topic_changes.auto_create_failures.failed(error, {"topic": name})
