"""The gain of each kind of batching (table 1 of LinkedIn's pipeline paper), and of compression.

Rules: our broker alone, one change at a time: the producer's batches, the broker's flushes, the
consumer's fetches. Compression is measured on messages that resemble events.
"""

from __future__ import annotations

from bench.broker.contender import SIZE
from bench.broker.kafka_like import BATCHES, KafkaLike
from bench.frame import Bench

_US = "headworks"
_RATE = "messages/s"
_BATCH_200 = ("batch.num.messages=200",)
# librdkafka waits for each answer, and so for each flush, before it sends the next batch.
_ONE_BY_ONE = ("acks=all", "max.in.flight.requests.per.connection=1", "linger.ms=0")
_SMALL_FETCH = ("fetch.message.max.bytes=1",)  # one batch an answer: there is no less
_CODECS = ("none", "gzip", "zstd")


def run(bench: Bench, ours: KafkaLike) -> None:
    """Measure both."""
    scale = 10 if bench.quick else 1
    for number in bench.rounds(full=3):
        _batching(bench, ours, number, scale)
        _compression(bench, ours, number, scale)
    for name, many, one in (
        ("producer", "send, batches of 200", "send, batches of 1"),
        ("broker", "send, flushed by policy", "send, every write flushed"),
        ("consumer", "read, fetches of 1 MB", "read, fetches of one message"),
    ):
        got = bench.ratio(many, _US, _US, other_what=one)
        if got is not None:
            bench.record(f"gain of batching, {name}", _US, got, "x")


def _batching(bench: Bench, ours: KafkaLike, number: int, scale: int) -> None:
    topic = f"batching-{number}"

    def send(what: str, name: str, count: int, *settings: str) -> None:
        ours.create(f"{topic}-{name}")
        answer = ours.send(f"{topic}-{name}", count // scale, *settings)
        bench.record(what, _US, answer.rate, _RATE)

    ones = 300_000
    send("send, batches of 1", "one", ones, *BATCHES["batch 1"])
    send("send, batches of 200", "many", 3_000_000, *_BATCH_200)
    send("send, flushed by policy", "policy", ones, *BATCHES["batch 1"])
    send("send, every write flushed", "flush", 2_000, *BATCHES["batch 1"], *_ONE_BY_ONE)
    for what, count, settings in (
        ("read, fetches of 1 MB", ones, ()),
        ("read, fetches of one message", 20_000, _SMALL_FETCH),
    ):
        answer = ours.read(f"{topic}-one", count // scale, *settings)
        bench.record(what, _US, answer.rate, _RATE)
    for name in ("one", "many", "policy", "flush"):
        ours.drop(f"{topic}-{name}")


def _compression(bench: Bench, ours: KafkaLike, number: int, scale: int) -> None:
    count = 1_000_000 // scale
    for codec in _CODECS:
        topic = f"compression-{codec}-{number}"
        ours.create(topic)
        before = ours.spent()
        sent = ours.send(topic, count, *_BATCH_200, f"compression.codec={codec}", payload="event")
        cpu = 1e6 * (ours.spent().cpu - before.cpu) / count
        what = f"events, batches of 200, {codec}"
        bench.record(f"{what}: send", _US, sent.rate, _RATE, cpu=cpu, cpu_unit="us/message")
        bench.record(f"{what}: read", _US, ours.read(topic, count).rate, _RATE)
        bench.record(f"{what}: smaller", _US, SIZE * count / ours.stored(topic), "x")
        ours.drop(topic)
