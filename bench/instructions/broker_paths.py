"""The paths of a broker that are counted: produce and fetch requests over one bare socket.

Rule: every checkout gets the same bytes, in versions that all of them serve (Produce 7, Fetch 11).
"""

from __future__ import annotations

import itertools
import struct
from collections.abc import Callable, Iterable, Iterator
from datetime import timedelta

from headworks._kafka.protocol.apis import ApiKey
from headworks._kafka.records import Record, encode_batch
from tests.broker.wire import Wire, fetch, kind, produce, produced

_SIZE_BYTES = 200  # of a message, as in `bench broker`
_MEGABYTE = 4800  # messages in a batch of 1 MB
_TIMEOUT_SECONDS = 600.0
_PRODUCER = 7, 0  # id and epoch of an idempotent producer
# Its topics: messages in a batch, and requests in flight, of which librdkafka and Java have five
_IDEMPOTENT = {"sequence": (1, 1), "five": (1, 5), "sequence-fifty": (50, 1)}

CountedPath = tuple[str, Callable[[int], None], int, int]


def broker_paths(address: str) -> Iterator[CountedPath]:
    """Yield name, call, and the two counts of each path."""
    with Wire(address, timeout=_TIMEOUT_SECONDS) as wire:
        topics = ("one", "pipelined", "fifty", "megabyte", "flushed", *_IDEMPOTENT)
        _create(wire, topics)
        yield "produce, batch of 1", _produces(wire, "one", 1), 100, 400
        yield "produce, batch of 1, 50 in flight", _produces(wire, "pipelined", 1, 50), 500, 3000
        yield "produce, batch of 50", _produces(wire, "fifty", 50), 100, 400
        yield "produce, batch of 1 MB", _produces(wire, "megabyte", _MEGABYTE), 8, 56
        yield "produce, acks=all", _produces(wire, "flushed", 1, acks=-1), 50, 250
        one, pipelined, fifty = (_produces_in_sequence(wire, *path) for path in _IDEMPOTENT.items())
        yield "produce, idempotent, batch of 1", one, 100, 400
        yield "produce, idempotent, batch of 1, five in flight", pipelined, 500, 3000
        yield "produce, idempotent, batch of 50", fifty, 100, 400
        _create(wire, ("compacted",), **{"cleanup.policy": "compact"})
        yield "produce, beside a topic of opened batches", _produces(wire, "one", 1), 100, 400
        for topic in topics[:4]:
            _produces(wire, topic, 1, acks=-1)(1)  # readers see what is flushed
        yield "fetch, one message", _fetches(wire, "one", 300), 100, 400
        yield "fetch, 1 MB in batches of 50", _fetches(wire, "fifty", 1 << 20), 50, 200
        yield "fetch, a batch of 1 MB", _fetches(wire, "megabyte", 1 << 20), 10, 60


def _create(wire: Wire, topics: Iterable[str], **configs: str) -> None:
    topic_class = kind(ApiKey.CREATE_TOPICS, 4, "request", "CreatableTopic")
    config_class = kind(ApiKey.CREATE_TOPICS, 4, "request", "CreatableTopicConfig")
    wire.ask(
        ApiKey.CREATE_TOPICS,
        4,
        topics=tuple(
            topic_class(
                name=name,
                num_partitions=1,
                replication_factor=1,
                assignments=(),
                configs=tuple(config_class(name=key, value=configs[key]) for key in configs),
            )
            for name in topics
        ),
        timeout=timedelta(seconds=_TIMEOUT_SECONDS),
        validate_only=False,
    )


def _produces(
    wire: Wire, topic: str, messages: int, in_flight: int = 1, *, acks: int = 1
) -> Callable[[int], None]:
    request = _request(topic, encode_batch(_records(messages)), acks=acks)

    def call(count: int) -> None:
        for _ in range(0, count, in_flight):
            wire.socket.sendall(request * in_flight)
            _receive(wire, topic, in_flight)

    return call


def _produces_in_sequence(wire: Wire, topic: str, shape: tuple[int, int]) -> Callable[[int], None]:
    messages, in_flight = shape
    records, numbers = _records(messages), itertools.count(step=messages)

    def call(calls: int) -> None:
        for _ in range(0, calls, in_flight):
            batches = [
                encode_batch(records, producer=(*_PRODUCER, next(numbers)))
                for _ in range(in_flight)
            ]
            wire.socket.sendall(b"".join(_request(topic, batch, acks=1) for batch in batches))
            _receive(wire, topic, in_flight)

    return call


def _records(messages: int) -> list[Record]:
    return [Record(i, 1_700_000_000_000 + i, None, b"v" * _SIZE_BYTES, ()) for i in range(messages)]


def _request(topic: str, batch: bytes, *, acks: int) -> bytes:
    body = produce(topic, 0, bytes(batch), acks=acks)
    head = struct.pack(">hhih", ApiKey.PRODUCE, 7, 1, 4) + b"wire"
    return struct.pack(">i", len(head) + len(body)) + head + body


def _receive(wire: Wire, topic: str, replies: int) -> None:
    for _ in range(replies):
        error, _ = produced(wire.receive()[1], topic)
        assert error == 0, error


def _fetches(wire: Wire, topic: str, max_bytes: int) -> Callable[[int], None]:
    def call(count: int) -> None:
        for _ in range(count):
            wire.send(ApiKey.FETCH, 11, fetch(topic, 0, 0, max_bytes=max_bytes))
            assert len(wire.receive()[1]) > _SIZE_BYTES

    return call
