"""A producer under fire: writes down in a file of its own, before and after, what it sends.

`python -m tests.soak.fire_producer BOOTSTRAP REGISTRY TOPIC SCHEMA STATE JOURNAL SEED QUEUE NAME
REST`

QUEUE is the size of its queue in messages, NAME its application, and REST the longest time in
seconds between two bursts.

The journal is the ledger outside the system: `>` before a send, `+` after one that took the
message, `-` after one that dropped it. So whoever stops this process between the lines of one send
knows it, and does not kill it there.
"""

from __future__ import annotations

import os
import signal
import sys
import time
import uuid
from datetime import UTC, datetime
from pathlib import Path
from random import Random

from headworks._audit_counting import WINDOW_MS
from headworks._stop_event import StopEvent
from producer_sdk import Producer
from producer_sdk._untyped import event_class
from tests.soak.process import PATIENCE

LATE_MS = 3 * 86_400_000


def main() -> int:
    bootstrap, registry, topic, schema, state, journal, seed, queue, name, rest = sys.argv[1:]
    stop = StopEvent()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    chance = Random(int(seed))
    event = event_class(topic, Path(schema).read_text(encoding="utf-8"))
    sender = uuid.uuid4().hex
    out = os.open(journal, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    producer = Producer(
        bootstrap,
        registry,
        application=name,
        queue_messages=int(queue),
        state_dir=Path(state),
        audit_every=0.3,
        close_timeout=PATIENCE,
        registry_timeout=PATIENCE,
    )
    n = 0
    while not stop.is_set():
        for _ in range(chance.randint(1, 40)):
            at = int(time.time() * 1000) - chance.choice((0, 0, 0, WINDOW_MS, LATE_MS))
            os.write(out, f"> {sender} {n} {at}\n".encode())
            instant = datetime.fromtimestamp(at / 1000, UTC)
            took = producer.send(event({"sender": sender, "n": n, "at": instant}))
            os.write(out, f"{'+' if took else '-'} {sender} {n} {at}\n".encode())
            n += 1
        # Twelve producers share the machine with what they test.
        stop.wait(chance.random() * float(rest))
    left = producer.close()
    sys.stderr.write(f"closed with {left} left\n")
    return 0 if left == 0 else 1


if __name__ == "__main__":
    sys.exit(main())
