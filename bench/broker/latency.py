"""How long one message takes: until it is acknowledged, and until a consumer has it.

Rules: one message at a time, no lingering, the client's own threads included; a tenth more goes
first, untimed. Percentiles are of one round; the result holds their medians over the rounds.
"""

from __future__ import annotations

from collections.abc import Sequence

from bench.broker.contender import started
from bench.broker.kafka_like import Headworks, KafkaLike
from bench.frame import Bench

_CASES = (
    ("one send, acks=1", "latency", ("acks=1", "linger.ms=0")),
    ("one send, acks=all", "latency", ("acks=all", "linger.ms=0")),
    ("send to receipt", "trip", ("acks=1", "linger.ms=0")),
)


class _Unflushed(Headworks):
    """Our broker, showing consumers what is not on disk yet, as Apache Kafka does."""

    name = "headworks --show-unflushed"
    options = ("--show-unflushed",)


def run(bench: Bench, kafkas: Sequence[KafkaLike]) -> None:
    """Time single messages through each."""
    count = 200 if bench.quick else 2_000
    bench.note(
        "acks=all of headworks waits for the disk, and its consumers see only what is on disk."
        " Apache Kafka's acks=all waits for the page cache of its replicas, here of one."
    )
    with started(bench, _Unflushed(kafkas[0].clients)) as unflushed:
        for number in bench.rounds(full=3):
            for what, program, settings in _CASES:
                shown = [unflushed] if program == "trip" else []
                for contender in [*kafkas, *shown]:
                    topic = f"{program}-{settings[0].replace('=', '-')}-{number}"
                    contender.create(topic)
                    answer = contender.time(program, topic, count, *settings)
                    for name in ("p50", "p99", "p999"):
                        value = 1e6 * getattr(answer, name)
                        bench.record(f"{what}, {name}", contender.name, value, "us")
                    contender.drop(topic)
