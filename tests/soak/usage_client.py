"""A program that writes or reads a topic, and writes down in a journal of its own when it did.

`python -m tests.soak.usage_client BOOTSTRAP REGISTRY TOPIC ROLE NAME CLASSES STATE JOURNAL`

ROLE: `write`, `read` (with a class), `dicts`, or `plain` (a Kafka client that commits offsets and
reports nothing). CLASSES is the package of the version that it has, in the folder beside STATE.

Rules: a line of the journal is the time of a use in ms since 1970, taken before the use, and
written after it was counted. So a use in the journal is one that must become known.
"""

from __future__ import annotations

import importlib
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import confluent_kafka

from consumer_sdk import Consumer
from headworks._stop_event import StopEvent
from headworks.errors import UnreachableError
from producer_sdk import Producer
from tests.soak.process import PATIENCE

_PAUSE_SECONDS = 0.05  # between two sends
_REPORT_SECONDS = 0.3
_SESSION_MS = 6_000


def main() -> int:
    bootstrap, registry, topic, role, name, classes, state, journal = sys.argv[1:]
    stop = StopEvent()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    out = os.open(journal, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)

    def used(at: int) -> None:
        os.write(out, f"{at}\n".encode())

    sys.path.insert(0, str(Path(state).parent))
    shot = importlib.import_module(f"{classes}.use").Shot
    if role == "write":
        return _write(bootstrap, registry, name, Path(state), shot, stop, used)
    if role == "plain":
        return _read_plainly(bootstrap, topic, name, stop, used)
    source: dict[str, Any] = {"events": [shot]} if role == "read" else {"topics": [topic]}
    consumer = Consumer(
        **source,
        group=name,
        bootstrap=bootstrap,
        registry=registry,
        audit=True,
        audit_every=_REPORT_SECONDS,
        application=f"{name}-app",
        state_dir=Path(state),
        unreachable_after=None,
        config={"session.timeout.ms": _SESSION_MS, "heartbeat.interval.ms": 1_000},
    )
    with consumer:
        last = 0
        while not stop.is_set():
            message = consumer.poll(0.2)  # it counts the message before
            if last:
                used(last)
            last = 0 if message is None else _now()
    return 0


def _write(
    bootstrap: str,
    registry: str,
    name: str,
    state: Path,
    shot: type[Any],
    stop: threading.Event,
    used: Callable[[int], None],
) -> int:
    producer = Producer(
        *(bootstrap, registry),
        application=name,
        state_dir=state,
        audit_every=_REPORT_SECONDS,
        close_timeout=PATIENCE,
        registry_timeout=PATIENCE,
    )
    number = 0
    while not stop.wait(_PAUSE_SECONDS):
        at, number = _now(), number + 1
        with suppress(UnreachableError):  # the id of a class is asked for at its first event
            if producer.send(shot(n=number, at=datetime.now(UTC))):
                used(at)
    return 0 if producer.close() == 0 else 1


def _read_plainly(
    bootstrap: str, topic: str, group: str, stop: threading.Event, used: Callable[[int], None]
) -> int:
    client = confluent_kafka.Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "session.timeout.ms": _SESSION_MS,
            "log_level": 2,
        }
    )
    client.subscribe([topic])
    while not stop.is_set():
        message = client.poll(0.2)
        if message is None or message.error() is not None:
            continue
        at = _now()
        try:
            client.commit(message=message, asynchronous=False)
        except confluent_kafka.KafkaException:
            continue  # the broker is down, or the group is balanced
        used(at)
    client.close()
    return 0


def _now() -> int:
    return time.time_ns() // 1_000_000


if __name__ == "__main__":
    sys.exit(main())
