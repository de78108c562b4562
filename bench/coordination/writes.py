"""The writes of brokers to ZooKeeper, in its transactions: it takes some hundreds a second.

An idle broker's proofs of life, a topic created, and offsets of groups. Commits that arrive
together share a transaction, so their number may grow far beyond what ZooKeeper takes.
"""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor

from confluent_kafka import Consumer, TopicPartition

from bench.coordination.brokers import Peers, peers
from bench.frame import Bench

_SESSION = 6.0
_GROUPS = 16


def run(bench: Bench) -> None:
    """Three brokers, one ZooKeeper."""
    with peers(bench.folder / "writes", session=_SESSION) as running:
        for number in bench.rounds(full=3):
            seconds = 3.0 if bench.quick else 10.0
            before = _written(running)
            time.sleep(seconds)
            rate = (_written(running) - before) / seconds / len(running.brokers)
            bench.record("transactions a second", "an idle broker", rate, "/s")

            before = _written(running)
            running.create(f"wide-{number}", [[n % 3 + 1] for n in range(99)])
            made = _written(running) - before
            bench.record("transactions", "a topic of 99 partitions", made, "transactions")

            _commits(bench, running, f"wide-{number}", 50 if bench.quick else 300)


def _commits(bench: Bench, running: Peers, topic: str, each: int) -> None:
    """Many groups commit 99 positions at once, one commit after the other."""
    before, began = _written(running), time.perf_counter()
    with ThreadPoolExecutor(_GROUPS) as pool:
        waiting = [
            pool.submit(_commit, running.bootstrap, topic, f"{topic}-{n}", each)
            for n in range(_GROUPS)
        ]
        for one in waiting:
            one.result()
    seconds, made = time.perf_counter() - began, _written(running) - before
    commits = _GROUPS * each
    bench.record("commits of 99 positions", "16 groups at once", commits / seconds, "commits/s")
    bench.record(
        "commits in one transaction", "16 groups at once", commits / max(made, 1), "commits"
    )


def _commit(bootstrap: str, topic: str, group: str, times: int) -> None:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": group, "log_level": 0})
    for number in range(times):
        positions = [TopicPartition(topic, partition, number) for partition in range(99)]
        consumer.commit(offsets=positions, asynchronous=False)
    consumer.close()


def _written(running: Peers) -> int:
    return int(running.zookeeper.status("Zxid") or "0", 16) & 0xFFFFFFFF
