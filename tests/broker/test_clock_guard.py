"""A clock that jumps forward pauses retention; a right one does not."""

from __future__ import annotations

import pytest

from headworks._broker.server.clock_guard import ClockGuard

pytestmark = pytest.mark.unit

MONTH = 30 * 86_400.0


class Clocks:
    """A wall clock and a monotonic one."""

    def __init__(self) -> None:
        self.wall = 1_700_000_000.0
        self.monotonic = 50.0

    def after(self, seconds: float, *, jump: float = 0.0) -> None:
        """Let time pass, and set the wall clock forward."""
        self.wall += seconds + jump
        self.monotonic += seconds


@pytest.fixture
def clocks() -> Clocks:
    return Clocks()


@pytest.fixture
def guard(clocks: Clocks) -> ClockGuard:
    return ClockGuard(lambda: clocks.wall, lambda: clocks.monotonic)


def test_a_jump_forward_pauses_retention_once_and_is_told_once(
    clocks: Clocks, guard: ClockGuard, caplog: pytest.LogCaptureFixture
) -> None:
    clocks.after(300)
    assert guard.may_expire()
    clocks.after(300, jump=MONTH)
    for _ in range(71):
        assert not guard.may_expire()
        clocks.after(300)
    clocks.after(600)
    assert guard.may_expire(), "nobody has set it back: it is believed"
    clocks.after(300)
    assert guard.may_expire()
    [message] = caplog.messages
    assert "jumped forward by 2592000 s: retention pauses for 21600 s" in message


def test_a_clock_that_is_set_right_again_expires_at_once(clocks: Clocks, guard: ClockGuard) -> None:
    clocks.after(300, jump=MONTH)
    assert not guard.may_expire()
    clocks.after(300, jump=-MONTH)
    assert guard.may_expire()
    clocks.after(300, jump=MONTH)
    assert not guard.may_expire()


def test_small_steps_and_steps_back_pause_nothing(clocks: Clocks, guard: ClockGuard) -> None:
    for jump in (100.0, -50.0, 3000.0, -MONTH, 60.0):
        clocks.after(300, jump=jump)
        assert guard.may_expire()
