"""Damage at rest: batches of known offsets, and one bit of a value that changes on disk."""

from __future__ import annotations

import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from headworks._kafka.error_codes import ErrorCode
from headworks._kafka.protocol.apis import ApiKey
from headworks._kafka.records import HEADER_SIZE, Batch, Record, encode_batch, read_header
from tests.broker.wire import Wire, produce, produced
from tests.interop.in_place import log_folder
from tests.waiting import until

PATIENCE = 60.0
_NOT_YET = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.NOT_LEADER_OR_FOLLOWER)
# After a wrong CRC, librdkafka reads on somewhere in the batch. Text there costs it its offset.
_KEY = b"abcdefghijklmnopqrstuvwxyz" * 4


def produce_batches(
    address: str, topic: str, values: Sequence[bytes], *, batch: int = 10, partitions: int = 1
) -> None:
    """Write `values` to partition 0 of a new topic, `batch` of them in each record batch.

    No client does it: each of them is free to send a batch before it is full.
    """
    admin = AdminClient({"bootstrap.servers": address})
    if topic not in admin.list_topics(timeout=PATIENCE).topics:
        admin.create_topics([NewTopic(topic, partitions, 1)])[topic].result(PATIENCE)
    now = int(time.time() * 1000)
    with Wire(leader(admin, topic)) as wire:
        for start in range(0, len(values), batch):
            records = [Record(0, now, _KEY, value, ()) for value in values[start : start + batch]]
            body = produce(topic, 0, encode_batch(records), acks=-1)
            assert until(partial(_appended, wire, topic, body))


def _appended(wire: Wire, topic: str, body: bytes) -> bool:
    """Return whether a batch was appended; Apache Kafka refuses it while the topic is new."""
    wire.send(ApiKey.PRODUCE, 7, body)
    error, _ = produced(wire.receive()[1], topic)
    assert error in (0, *_NOT_YET)
    return error == 0


def leader(admin: AdminClient, topic: str) -> str:
    """Return the address of the leader of partition 0."""

    def led() -> str:
        found = admin.list_topics(topic, timeout=PATIENCE)
        partition = found.topics[topic].partitions.get(0)
        broker = partition and found.brokers.get(partition.leader)
        return f"{broker.host}:{broker.port}" if broker else ""

    return until(led)


def segment(folder: Path, topic: str) -> Path:
    """Return the only segment of partition 0, at the broker that was started in `folder`."""
    (found,) = log_folder(folder, topic).glob("*.log")
    return found


def batches(path: Path) -> list[Batch]:
    """Return the headers of a segment's batches."""
    data, found, position = path.read_bytes(), [], 0
    while position < len(data):
        found.append(read_header(data, position))
        position += found[-1].size
    return found


def flip_bit(path: Path, batch: Batch, at: int | None = None) -> None:
    """Change one bit in the last value of a batch, or in the batch's byte `at`."""
    if at is None:
        at = batch.size - 2  # the last byte of the last value; the count of headers follows
    assert batch.size > HEADER_SIZE
    with path.open("r+b") as file:
        file.seek(batch.position + at)
        (byte,) = file.read(1)
        file.seek(batch.position + at)
        file.write(bytes([byte ^ 4]))
