"""A producer that reports attempts before their outcome, until it is killed.

`python -m tests.soak.alarm_producer BOOTSTRAP REGISTRY STATE`: it prints `reported` when it has.
"""

from __future__ import annotations

import sys
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path

from producer_sdk import Producer
from producer_sdk._untyped import event_class
from tests.soak.live_traffic import TOPICS

_TOPIC = "shop.orders"
_REPORTS = 10


def main() -> int:
    bootstrap, registry, state = sys.argv[1:]
    event = event_class(_TOPIC, TOPICS[_TOPIC])
    producer = Producer(
        bootstrap, registry, application="killed", state_dir=Path(state), audit_every=0.5
    )
    sent = 0
    while True:
        # Others wrote into later windows, and a surplus there would hide what is unresolved.
        at = datetime.now(UTC) - timedelta(minutes=90)
        producer.send(event({"at": at, "number": sent, "customer": "ada"}))
        sent += 1
        time.sleep(0.02)
        if sent == 50 * _REPORTS:
            sys.stdout.write("reported\n")
            sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
