"""A source that is down keeps its last answer, with its age and the reason."""

from __future__ import annotations

import itertools
import threading

import pytest

from headworks._console.app.visibility import ALL_VISIBLE
from headworks._console.sources import Poller
from headworks._console.views.health import health_page
from headworks._console.views.paging import ListQuery
from headworks.errors import UnreachableError

pytestmark = pytest.mark.unit


def test_a_failed_reading_keeps_the_last_good_one() -> None:
    now = [100.0]
    answers: list[object] = [1, UnreachableError("gone", fix="start it"), RuntimeError("bug"), 2]

    def read() -> int:
        found = answers.pop(0)
        if isinstance(found, Exception):
            raise found
        assert isinstance(found, int)
        return found

    source = Poller("thing", read, interval=1.0, clock=lambda: now[0])
    assert source.latest.value is None
    source.refresh()
    now[0] += 5
    source.refresh()
    found = source.latest
    assert (found.value, found.state.age_seconds) == (1, 5.0)
    assert (found.state.problem, found.state.fix) == ("gone", "start it")
    source.refresh()
    assert "bug" in (source.latest.state.problem or "")
    source.refresh()
    assert source.latest.value == 2
    assert source.latest.state.problem is None


def test_what_nobody_looks_at_is_read_seldom_and_at_once_when_somebody_does() -> None:
    numbers = itertools.count(1)
    read = threading.Condition()
    seen = [0]

    def reading() -> int:
        with read:
            seen[0] = next(numbers)
            read.notify_all()
        return seen[0]

    def wait_for(number: int, seconds: float) -> bool:
        with read:
            return read.wait_for(lambda: seen[0] >= number, seconds)

    source = Poller("thing", reading, interval=0.01, idle_after=0.05, idle_interval=3600.0)
    source.start()
    try:
        before = -1
        while seen[0] != before:  # until it has fallen asleep
            before = seen[0]
            wait_for(before + 1, 1.0)
        assert source.latest.value == before
        assert wait_for(before + 3, 30), "a page that asks wakes it"
    finally:
        source.stop()
    source._thread.join(30)
    assert not source._thread.is_alive(), "a sleeping source can be ended"


def test_a_server_that_hung_is_asked_again_soon() -> None:
    now = [100.0]
    reads = threading.Semaphore(0)

    def hung() -> int:
        now[0] += 1000.0
        reads.release()
        return 1

    source = Poller(
        "thing", hung, interval=0.01, idle_after=1e9, longest_pause=0.1, clock=lambda: now[0]
    )
    source.start()
    try:
        assert all(reads.acquire(timeout=30) for _ in range(3))
    finally:
        source.stop()


def test_before_the_first_reading_pages_wait_together_not_one_after_the_other() -> None:
    now = [100.0]
    go = threading.Event()
    source = Poller("thing", go.wait, interval=1.0, clock=lambda: now[0])
    source.start()
    now[0] += 10
    found = source.latest
    go.set()
    source.stop()
    assert (found.value, found.state.age_seconds) == (None, None)


def test_a_first_page_before_the_audit_was_read_does_not_say_that_there_is_none() -> None:
    page = health_page(None, None, None, ALL_VISIBLE, ListQuery("", 1, ""), tier="hadoop", now_ms=0)
    assert page.sentence == "The audit has not been read yet."
    assert page.kept
