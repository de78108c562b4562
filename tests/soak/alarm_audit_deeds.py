"""How the audit's figures are hurt: the deeds of `alarms` that concern producers and reconciler.

Rule: a deed returns when the trouble is caused, and no deed waits for an alert.
"""

from __future__ import annotations

import signal
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta

from headworks._audit.increments import Increment
from headworks._audit_counting import AUDIT_TOPIC, WINDOW_MS, window_of
from headworks._wire import prefix
from headworks.codec import event_type
from producer_sdk import Producer
from producer_sdk._untyped import event_class
from tests.soak.alarm_deeds import locked
from tests.soak.alarm_stand import ORDERS, READINGS, Stand, other_class
from tests.soak.live_traffic import TOPICS
from tests.soak.process import PATIENCE
from tests.waiting import until

_RETURNS = "shop.returns"


def drop(stand: Stand) -> None:
    event = event_class(ORDERS, TOPICS[ORDERS])
    producer = Producer(
        *(stand.at["broker"], stand.registry_url),
        application="dropping",
        state_dir=stand.folder / "dropping",
        audit_every=0.5,
        queue_messages=5,
        close_timeout=PATIENCE,
    )
    at = datetime.now(UTC) - timedelta(minutes=20)
    producer.send_and_wait(event({"at": at, "number": 0, "customer": "ada"}), PATIENCE)
    stand.broker.signal(signal.SIGSTOP)
    for n in range(300):
        producer.send(event({"at": at, "number": n, "customer": "ada"}))
    stand.broker.signal(signal.SIGCONT)
    producer.close()


def spoil_the_audit(stand: Stand) -> None:
    stand.write(AUDIT_TOPIC, b"no increment")


def report_from_a_wrong_clock(stand: Stand) -> None:
    now = int(time.time() * 1000)
    for _ in range(3):
        stand.report(_increment(ORDERS, window_of(now), {"attempted": 1}, "fast", now + 600_000))
        time.sleep(1)


def _increment(
    topic: str, window: int, counts: dict[str, int], application: str, sent_at: int
) -> Increment:
    who = (0, f"{application}-host", application)
    return Increment(str(uuid.uuid4()), topic, "producer", window, counts, *who, sent_at=sent_at)


def stop_loading(stand: Stand) -> None:
    stand.send(READINGS, 20, minutes_ago=10, apart=10)
    stand.send(_RETURNS, 5)
    stand.send(ORDERS, 50)


def load_what_nobody_reported(stand: Stand) -> None:
    # A topic that has lost nothing: the two would cancel.
    number, kind = stand.ids[f"{_RETURNS}-value"], other_class(_RETURNS)
    at = datetime.now(UTC) - timedelta(minutes=20)
    value = prefix(number) + event_type(kind).encode(kind({"at": at, "number": 1}))
    stand.write(_RETURNS, *[value] * 9)
    stand.load()


def load_again_from_the_beginning(stand: Stand) -> None:
    stand.load(warehouse=stand.folder / "second-warehouse")


def kill_a_producer(stand: Stand) -> None:
    """Kill a producer that has reported attempts, whose outcome is open while the disk is slow."""
    with stand.fault("slow"):
        place = (stand.at["broker"], stand.registry_url, str(stand.folder / "killed"))
        dying = stand.child("killed", "tests.soak.alarm_producer", *place)
        stand.wait_for('headworks_audit_findings{kind="unresolved"} or vector(0) == 0')
        until(lambda: "reported" in dying.log.read_text(encoding="utf-8"))
        dying.kill()


def have_a_usual_volume_and_lose_it(stand: Stand) -> None:
    """Begin a new store, with five weeks of a topic that has been silent for half an hour."""
    stand.audit.kill()
    now = int(time.time() * 1000)
    until_window, first = window_of(now) - 3 * WINDOW_MS, window_of(now) - 5 * 7 * 86_400_000
    for start in range(first, until_window, 144 * WINDOW_MS):
        windows = range(start, min(start + 144 * WINDOW_MS, until_window), WINDOW_MS)
        stand.report(
            *(_increment("shop.visits", w, {"attempted": 600}, "visits", w) for w in windows)
        )
    stand.audit_store = stand.folder / "audit-2.db"
    stand.audit = stand.start_audit()


@contextmanager
def locked_audit_store(stand: Stand) -> Iterator[None]:
    """Keep the reconciler from writing to its store."""
    with locked(stand.audit_store):
        yield
