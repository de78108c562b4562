"""From a consumer's death to the first message that its heir reads, by session timeout.

Two consumers, each a process, share two partitions that get a message every few milliseconds. One
is killed (SIGKILL); the clock runs until the other gives out a message of the partition that was
not its own. Beside it the same two in a group that the broker balances, with the same timeout.
"""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from typing import Literal

import confluent_kafka
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from bench.frame import Bench
from headworks._cli.stack.embedded_zookeeper import EmbeddedZooKeeper
from headworks._server import child_process
from headworks._wire import prefix
from headworks.errors import UnreachableError
from headworks.registry_client import RegistryClient
from headworks.schema import subject_of

_TOPIC = "takeover"
_LIMIT = 90.0
_SCHEMA = {"type": "record", "name": "Tick", "fields": [{"name": "at", "type": "boolean"}]}
Membership = Literal["zookeeper", "broker"]
_WHO: dict[Membership, str] = {
    "zookeeper": "Headworks, no coordinator",
    "broker": "Headworks, broker's group",
}


class _Reader:
    """A consumer's process; `seen` are the times at which it gave out messages, by partition."""

    def __init__(self, *arguments: str) -> None:
        command = [sys.executable, "-m", "bench.coordination.reader", *arguments]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        self.last: dict[int, float] = {}
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()
        self._thread.join()

    def _read(self) -> None:
        assert self.process.stdout is not None
        with self.process.stdout as lines:
            for line in lines:
                self.last[int(line)] = time.monotonic()


def run(bench: Bench) -> None:
    """Kill one of two, in both kinds of groups, by session timeout."""
    timeouts = (2.0, 6.0) if bench.quick else (2.0, 6.0, 15.0)
    with ExitStack() as stack:
        zookeeper = stack.enter_context(EmbeddedZooKeeper(bench.folder / "takeover-zookeeper"))
        store = f"sqlite:///{bench.folder / 'takeover.db'}"
        start = ["registry", "start", "--listen", "127.0.0.1:0", "--store", store]
        registry = stack.enter_context(child_process.start(start))
        folder = str(bench.folder / "takeover-broker")
        start = ["broker", "start", "--listen", "127.0.0.1:0", "--data-dir", folder]
        start += ["--zookeeper", zookeeper.address, "--broker-id", "1"]
        broker = stack.enter_context(child_process.start(start))
        admin = AdminClient({"bootstrap.servers": broker.address})
        admin.create_topics([NewTopic(_TOPIC, 2, 1)])[_TOPIC].result(30)
        stopping = threading.Event()
        feeding = threading.Thread(
            target=_feed, args=(broker.address, registry.url, stopping), daemon=True
        )
        feeding.start()
        stack.callback(feeding.join)
        stack.callback(stopping.set)
        where = (zookeeper.address, registry.url)
        for number in bench.rounds(full=3):
            for timeout in timeouts:
                for membership, who in _WHO.items():
                    if membership == "broker" and timeout < 6.0:
                        continue  # brokers refuse shorter ones, ours and Apache Kafka's
                    group = f"{membership}-{timeout}-{number}"
                    took = _takeover(*where, group, membership, timeout)
                    case = f"death to the heir's first message, session timeout {timeout:g} s"
                    bench.record(case, who, took, "s")
    for timeout in timeouts:
        case = f"death to the heir's first message, session timeout {timeout:g} s"
        bench.bar(
            f"{case}, beyond the timeout",
            got=_beyond(bench.median(case, _WHO["zookeeper"]), timeout),
            unit="s",
            at_most=3.0,
        )


def _beyond(took: float | None, timeout: float) -> float | None:
    return None if took is None else took - timeout


def _takeover(
    zookeeper: str, registry: str, group: str, membership: Membership, timeout: float
) -> float:
    arguments = (zookeeper, registry, group, _TOPIC, membership, str(int(timeout * 1000)))
    readers = [_Reader(*arguments), _Reader(*arguments)]
    try:
        _until(lambda: sorted(map(_recent, readers)) == [[0], [1]], "settled")
        victim, heir = readers
        (theirs,) = _recent(victim)
        heir.last.pop(theirs, None)
        victim.kill()
        killed = time.monotonic()
        _until(lambda: theirs in heir.last, "taken over")
        return time.monotonic() - killed
    finally:
        for reader in readers:
            reader.kill()


def _recent(reader: _Reader) -> list[int]:
    """The partitions of which it gave out something just now."""
    now = time.monotonic()
    return [partition for partition, at in reader.last.copy().items() if now - at < 0.5]


def _until(holds: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + _LIMIT
    while not holds():
        if time.monotonic() > deadline:
            raise UnreachableError(f"the group was not {what} within {_LIMIT:.0f} s")
        time.sleep(0.005)


def _feed(address: str, registry: str, stopping: threading.Event) -> None:
    told = RegistryClient(registry).register(subject_of(_TOPIC), json.dumps(_SCHEMA))
    value = prefix(told.id) + b"\x01"
    producer = confluent_kafka.Producer(
        {"bootstrap.servers": address, "linger.ms": 0, "log_level": 2}
    )
    while not stopping.wait(0.01):
        for partition in (0, 1):
            producer.produce(_TOPIC, value, partition=partition)
        producer.poll(0)
    producer.flush(10)
