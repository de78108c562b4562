"""The calls that a background thread hands to the application's thread."""

from __future__ import annotations

import threading

import pytest

from consumer_sdk._application_thread import ApplicationThread

pytestmark = pytest.mark.unit


def test_work_that_ends_at_once_leaves_no_call_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    start = threading.Thread.start

    def start_and_end(thread: threading.Thread) -> None:
        start(thread)
        thread.join()

    monkeypatch.setattr(threading.Thread, "start", start_and_end)
    application, called = ApplicationThread(), list[int]()
    application.calls.append((lambda: called.append(1), None))
    assert application.run_elsewhere(
        lambda: application.defer(lambda: called.append(2)), "close", 10.0
    )
    assert called == [1, 2]


def test_a_call_that_no_thread_waits_for_gets_its_own_turn() -> None:
    application, used = ApplicationThread(), threading.Event()
    entered, leave = threading.Event(), threading.Event()

    def poll() -> None:
        with application.in_background():
            application.defer(lambda: application.use(used.set))
            entered.set()
            leave.wait()

    polling = threading.Thread(target=poll)
    polling.start()
    entered.wait()
    serving = threading.Thread(target=application.serve, daemon=True)
    serving.start()
    assert not used.wait(0.2)  # the thread that uses the client does not look for requests
    leave.set()
    polling.join()
    assert used.wait(10.0)
    serving.join()
