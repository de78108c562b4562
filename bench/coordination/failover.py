"""How long a dead broker is missed: kill -9, until others say so, until its work goes on.

One broker of three is killed. Measured from the kill: until Metadata of another broker shows its
partitions without a leader; until its group has another coordinator that hands out the committed
position. Measured from its new start: until its partition takes a message again, and until the
message of before is read.
"""

from __future__ import annotations

import time
from typing import Any

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from bench.coordination.brokers import PATIENCE, Peers, peers, until
from bench.frame import Bench
from headworks._broker.coordination.assignment import coordinator_of

_TOPIC = "missed"
_VICTIM = 2
_OTHER = 1
_PROMPT: dict[str, Any] = {
    "reconnect.backoff.ms": 10,
    "reconnect.backoff.max.ms": 50,
    "retry.backoff.ms": 10,
    "topic.metadata.refresh.fast.interval.ms": 50,
    "log_level": 0,
}


def run(bench: Bench) -> None:
    """With two session timeouts; the shorter one alone for `--quick`."""
    sessions = (2.0,) if bench.quick else (2.0, 6.0)
    for session in sessions:
        who = f"session {session:.0f} s"
        with peers(bench.folder / f"failover-{session:.0f}", session=session) as running:
            running.create(_TOPIC, [[1], [2], [3]])
            for number in bench.rounds(full=5):
                _round(bench, running, who, f"group-{number}")
        seen = bench.median("leaderless seen by others", who)
        bench.bar(
            f"a dead broker is noticed, {who}",
            got=None if seen is None else seen / session,
            unit="sessions",
            at_most=1.5,
        )


def _round(bench: Bench, running: Peers, who: str, prefix: str) -> None:
    names = (f"{prefix}-{n}" for n in range(1000))
    group = next(g for g in names if coordinator_of(g, running.brokers) == _VICTIM)
    admin = AdminClient({"bootstrap.servers": running.brokers[_OTHER].address, "log_level": 0})
    victim = Producer({"bootstrap.servers": running.bootstrap, "acks": "all", **_PROMPT})
    _send(victim, b"before")
    position = _commit(running, group)

    running.brokers[_VICTIM].kill()
    killed = time.perf_counter()
    until(lambda: _leader(admin) == -1)
    bench.record("leaderless seen by others", who, time.perf_counter() - killed, "s")
    _committed(running, group, position)
    bench.record("group moved with its position", who, time.perf_counter() - killed, "s")

    began = time.perf_counter()
    running.start(_VICTIM)
    bench.record("start after a kill", who, time.perf_counter() - began, "s")
    _send(victim, b"after")
    bench.record("start to first message taken", who, time.perf_counter() - began, "s")
    until(lambda: _leader(admin) == _VICTIM)


def _leader(admin: AdminClient) -> int:
    found = admin.list_topics(_TOPIC, timeout=PATIENCE).topics[_TOPIC].partitions[_VICTIM - 1]
    return int(found.leader)


def _send(producer: Producer, value: bytes) -> None:
    producer.produce(_TOPIC, value, partition=_VICTIM - 1)
    producer.flush(PATIENCE)


def _commit(running: Peers, group: str) -> int:
    consumer = _consumer(running.bootstrap, group)
    consumer.assign([TopicPartition(_TOPIC, 0, 0)])
    [done] = consumer.commit(offsets=[TopicPartition(_TOPIC, 0, 17)], asynchronous=False)
    consumer.close()
    return int(done.offset)


def _committed(running: Peers, group: str, position: int) -> None:
    consumer = _consumer(running.brokers[_OTHER].address, group)

    def there() -> bool:
        try:
            [found] = consumer.committed([TopicPartition(_TOPIC, 0)], 0.5)
        except KafkaException:
            return False
        return bool(found.offset == position)

    until(there)
    consumer.close()


def _consumer(bootstrap: str, group: str) -> Consumer:
    return Consumer({"bootstrap.servers": bootstrap, "group.id": group, **_PROMPT})
