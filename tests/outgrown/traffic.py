"""A writer and a reader of the large shape, each a process with a journal of its own.

`python -m tests.outgrown.traffic write BOOTSTRAP REGISTRY STATE JOURNAL NAME`
`python -m tests.outgrown.traffic read BOOTSTRAP REGISTRY STATE JOURNAL NAME`

The writer's journal has a line for each event: `+ NUMBER AT SECONDS` if it was acknowledged, and
`? NUMBER AT SECONDS` if it was not within the time; AT is when it was sent, in seconds since the
epoch. The reader's has `= PARTITION OFFSET NUMBER AT SECONDS` for each event that it was given: AT
is when, and SECONDS is the time since the event before.
"""

from __future__ import annotations

import signal
import sys
import threading
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import IO, Any

from consumer_sdk import Consumer
from headworks._stop_event import StopEvent
from headworks.errors import HeadworksError
from producer_sdk import Producer
from producer_sdk._untyped import event_class
from tests.soak.live_traffic import TOPICS

TOPIC = "shop.orders"
SCHEMA = TOPICS[TOPIC]
_PAUSE_SECONDS = 0.02
_ACKNOWLEDGED_WITHIN_SECONDS = 600.0


def write(bootstrap: str, registry: str, state: Path, journal: IO[str], name: str) -> int:
    """Send one event after the other until SIGTERM; exit 0 if all were acknowledged."""
    stop, event = _stop(), event_class(TOPIC, SCHEMA)
    number, unknown = 0, 0
    with Producer(
        bootstrap, registry, application=name, state_dir=state, audit_every=1.0, close_timeout=600.0
    ) as producer:
        while not stop.wait(_PAUSE_SECONDS):
            at = time.time()
            one = event({"at": datetime.fromtimestamp(at, UTC), "number": number, "customer": name})
            began, mark = time.monotonic(), "+"
            try:
                producer.send_and_wait(one, _ACKNOWLEDGED_WITHIN_SECONDS)
            except HeadworksError as error:
                print(f"{number}: {error}", file=sys.stderr)
                mark, unknown = "?", unknown + 1
            journal.write(f"{mark} {number} {at:.3f} {time.monotonic() - began:.3f}\n")
            number += 1
    return 0 if unknown == 0 else 1


def read(bootstrap: str, registry: str, journal: IO[str], name: str) -> int:
    """Read until SIGTERM."""
    stop, before = _stop(), time.monotonic()
    with Consumer[Any](
        topics=[TOPIC], group=name, bootstrap=bootstrap, registry=registry, start="earliest"
    ) as consumer:
        while not stop.is_set():
            message = consumer.poll(0.5)
            if message is None:
                continue
            now = time.monotonic()
            place = f"{message.partition} {message.offset} {message.event['number']}"
            journal.write(f"= {place} {time.time():.3f} {now - before:.3f}\n")
            before = now
    return 0


def _stop() -> threading.Event:
    stop = StopEvent()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    return stop


def main() -> int:
    """Be the writer or the reader."""
    what, bootstrap, registry, state, file, name = sys.argv[1:]
    with Path(file).open("a", buffering=1, encoding="utf-8") as journal:
        if what == "write":
            return write(bootstrap, registry, Path(state), journal, name)
        return read(bootstrap, registry, journal, name)


if __name__ == "__main__":
    sys.exit(main())
