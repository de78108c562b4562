"""A signal that comes at any step of a wait ends it, and hangs nothing."""

from __future__ import annotations

import signal
import sys
import threading
import time
from collections.abc import Iterator
from types import FrameType
from typing import Any

import pytest

from headworks import _stop_event
from headworks._stop_event import StopEvent

pytestmark = pytest.mark.unit

_FILES = (threading.__file__, _stop_event.__file__)


@pytest.fixture
def event() -> Iterator[StopEvent]:
    """An event that SIGUSR1 sets."""
    found = StopEvent()
    before = signal.signal(signal.SIGUSR1, lambda *_: found.set())
    yield found
    signal.signal(signal.SIGUSR1, before)


def interrupted_wait(event: StopEvent, step: int, timeout: float) -> bool:
    """Wait, with a signal before the given step of the interpreter; whether there was one."""
    steps = 0

    def trace(frame: FrameType, what: str, _: Any) -> Any:
        nonlocal steps
        if frame.f_code.co_filename not in _FILES:
            return None
        frame.f_trace_opcodes = True
        if what == "opcode":
            steps += 1
            if steps == step:
                signal.raise_signal(signal.SIGUSR1)
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        event.wait(timeout)
    finally:
        sys.settrace(before)
    return steps >= step


def test_a_signal_at_any_step_of_a_wait_ends_it(
    event: StopEvent, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_stop_event, "_SLICE_SECONDS", 0.002)
    for step in range(1, 250):
        assert interrupted_wait(event, step, timeout=600)
        event.clear()


def test_a_signal_at_any_step_of_a_look_hangs_nothing(event: StopEvent) -> None:
    step = 1
    while interrupted_wait(event, step, timeout=0):
        assert event.is_set()
        event.clear()
        step += 1
    assert step > 30


def test_it_is_an_event() -> None:
    event, seen = StopEvent(), []
    assert (event.is_set(), event.wait(0), event.wait(0.01)) == (False, False, False)
    thread = threading.Thread(target=lambda: seen.append(event.wait()))
    thread.start()
    event.set()
    thread.join(60)
    assert seen == [True]
    began = time.monotonic()
    assert event.wait(600)
    assert time.monotonic() - began < 60
    event.clear()
    assert not event.is_set()
