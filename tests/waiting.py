"""Waiting for a fact: as long as it may take on a machine with much else to do, and no longer.

The longer a wait has taken, the more seldom `until` asks: questions take the time of the processor
from the server that is to answer.
"""

from __future__ import annotations

import sys
import time
import traceback
from collections.abc import Callable
from typing import TypeVar

PATIENCE = 60.0
_T = TypeVar("_T")


def until(asked: Callable[[], _T], patience: float = PATIENCE) -> _T:
    """What `asked` answers, once that is true; AssertionError with the last answer if it never is.

    Errors of `asked` are those of the test: it says itself which of them only mean "not yet".
    """
    began = time.monotonic()
    while not (found := asked()):
        waited = time.monotonic() - began
        assert waited < patience, f"{found!r} is all that came in {patience:.0f} s"
        time.sleep(min(max(waited / 20, 0.02), 0.2))
    return found


def within_some_time(check: Callable[[float], None], *seconds: float) -> None:
    """Pass `check` each of these times, until it passes: a machine stands still, but not that long.

    It is for what a process may do only if it has a processor now and then, as keeping a session.
    """
    for shorter in seconds[:-1]:
        try:
            check(shorter)
        except AssertionError:
            print(f"failed with {shorter} s:\n{traceback.format_exc()}", file=sys.stderr)
        else:
            return
    check(seconds[-1])
