"""The traffic of a live installation: shops and sensors that send, and groups that read.

`python -m tests.soak.live_traffic BOOTSTRAP REGISTRY STATE produce APPLICATION TOPIC=RATE ...`
`python -m tests.soak.live_traffic BOOTSTRAP REGISTRY STATE consume GROUP RATE TOPIC ...`

A rate is in messages a second. It swings by a third over ten minutes, as traffic does. A group with
the rate 0 reads as fast as it can.
"""

from __future__ import annotations

import json
import math
import signal
import sys
import threading
import time
from datetime import UTC, datetime
from pathlib import Path
from random import Random
from typing import Any

from consumer_sdk import Consumer
from headworks._stop_event import StopEvent
from producer_sdk import Producer
from producer_sdk._untyped import event_class

_PERIOD_SECONDS = 600.0
_SWING = 1 / 3
_TICK_SECONDS = 0.2
_AT = {"type": "long", "logicalType": "timestamp-millis"}


def topic_schema(topic: str, name: str, **fields: Any) -> str:
    """Return the schema of a topic, with the time of the event and these fields."""
    typed = [{"name": "at", "type": _AT, "doc": "When it happened."}]
    typed += [{"name": key, "type": kind, "doc": f"The {key}."} for key, kind in fields.items()]
    namespace, _, _ = topic.partition(".")
    governed = {"topic": topic, "event_time": "at", "owner": f"team-{namespace}"}
    return json.dumps(
        {
            "type": "record",
            "name": name,
            "namespace": namespace,
            "doc": f"One {name.lower()}.",
            "headworks": governed,
            "fields": typed,
        }
    )


TOPICS = {
    "shop.orders": topic_schema("shop.orders", "Order", number="long", customer="string"),
    "web.pageviews": topic_schema("web.pageviews", "Pageview", number="long", path="string"),
    "iot.readings": topic_schema("iot.readings", "Reading", number="long", celsius="double"),
}
SCHEMAS = {f"{topic}-value": text for topic, text in TOPICS.items()}
_REST: dict[str, dict[str, Any]] = {
    "shop.orders": {"customer": "ada"},
    "web.pageviews": {"path": "/"},
    "iot.readings": {"celsius": 21.5},
}


def produce(where: list[str], application: str, rates: dict[str, float]) -> int:
    """Send until SIGTERM; exit 0 if everything was delivered."""
    stop, chance = _stop(), Random(application)
    events = {topic: event_class(topic, TOPICS[topic]) for topic in rates}
    owed, number = dict.fromkeys(rates, 0.0), 0
    bootstrap, registry, state = where
    producer = Producer(
        bootstrap, registry, application=application, state_dir=Path(state), close_timeout=60.0
    )
    last = time.monotonic()
    while not stop.wait(_TICK_SECONDS):
        now = time.monotonic()
        swing = 1 + _SWING * math.sin(2 * math.pi * now / _PERIOD_SECONDS)
        for topic, rate in rates.items():
            owed[topic] += rate * swing * (now - last) * chance.uniform(0.5, 1.5)
            while owed[topic] >= 1:
                number += 1
                owed[topic] -= 1
                values = {"at": datetime.now(UTC), "number": number, **_REST[topic]}
                producer.send(events[topic](values))
        last = now
    return 0 if producer.close() == 0 else 1


def consume(where: list[str], group: str, rate: float, topics: list[str]) -> int:
    """Read until SIGTERM."""
    stop = _stop()
    bootstrap, registry, _ = where
    with Consumer[Any](
        topics=topics, group=group, bootstrap=bootstrap, registry=registry, start="earliest"
    ) as consumer:
        while not stop.is_set():
            if consumer.poll(0.5) is not None and rate:
                stop.wait(1 / rate)
    return 0


def _stop() -> threading.Event:
    stop = StopEvent()
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    return stop


def main() -> int:
    """Be one part of the traffic."""
    *where, what, name = sys.argv[1:6]
    more = sys.argv[6:]
    if what == "produce":
        pairs = (one.split("=") for one in more)
        return produce(where, name, {topic: float(rate) for topic, rate in pairs})
    return consume(where, name, float(more[0]), more[1:])


if __name__ == "__main__":
    sys.exit(main())
