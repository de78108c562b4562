"""The end of a process: every open producer is closed, and a forked child begins its own.

Rules: a child of multiprocessing ends by `os._exit`, which runs finalizers of multiprocessing and
no exit handlers, so it needs one of the former. A signal handler interrupts its thread anywhere,
also where that holds a lock that `close` takes. So it closes only if its thread is outside of the
SDK.
"""

from __future__ import annotations

import _thread
import atexit
import multiprocessing.process
import os
import signal
import sys
import time
import weakref
from types import FrameType
from typing import Any, Protocol

_WITH_LOCKS = {"producer_sdk", "headworks"}
_AGAIN_SECONDS = 0.01
_TRIES = 100  # until the thread counts as one that waits in the SDK, and another one closes


class Closable(Protocol):
    """A producer, as far as the end of a process concerns it."""

    def close(self) -> int:
        """Deliver the queue, publish the counts, and stop."""

    def _after_fork(self) -> None:
        """Leave the transport to the parent, in a forked child."""


def close_on_sigterm(producer: Closable) -> None:
    """Close `producer` on SIGTERM, and then end the process as before.

    By default, Python ends on SIGTERM without running exit handlers. Call this from the main thread
    of a program that has no handler of its own.
    """
    before = signal.getsignal(signal.SIGTERM)
    tries = 0
    is_closed = False

    def close_elsewhere(number: int) -> None:
        nonlocal is_closed
        producer.close()
        is_closed = True
        os.kill(os.getpid(), number)

    def handle(number: int, frame: FrameType | None) -> None:
        nonlocal tries
        if not is_closed and _is_inside(frame):
            tries += 1
            # Not `threading`, because its locks may be held as well.
            again = _kill_soon if tries < _TRIES else close_elsewhere
            _thread.start_new_thread(again, (number,))
            return
        if not is_closed:
            producer.close()
        if callable(before):
            before(number, frame)
        else:
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)

    signal.signal(signal.SIGTERM, handle)


def _is_inside(frame: FrameType | None) -> bool:
    """Return whether a thread may hold a lock that `close` takes."""
    while frame is not None:
        if frame.f_globals.get("__name__", "").partition(".")[0] in _WITH_LOCKS:
            return True
        frame = frame.f_back
    return False


def _kill_soon(number: int) -> None:
    time.sleep(_AGAIN_SECONDS)
    os.kill(os.getpid(), number)


open_producers: set[Any] = set()
"""The producers of this process that are not closed. A program may have forgotten one with events
in its queue, so this keeps them alive."""


def close_with_worker(producer: Closable) -> None:
    """Close a producer when this process ends, if it is a child of multiprocessing."""
    loaded = sys.modules.get("multiprocessing.util")
    if loaded is not None and multiprocessing.process.parent_process() is not None:
        loaded.Finalize(None, _close_if_open, args=(weakref.ref(producer),), exitpriority=0)


def _close_if_open(reference: weakref.ref[Closable]) -> None:
    producer = reference()
    if producer is not None:
        producer.close()


def _forget_transports_after_fork() -> None:
    for producer in list(open_producers):
        producer._after_fork()


def _close_at_exit() -> None:
    for producer in list(open_producers):
        producer.close()


os.register_at_fork(after_in_child=_forget_transports_after_fork)
atexit.register(_close_at_exit)
