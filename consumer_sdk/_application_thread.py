"""The turns of the application's thread and of background threads at one librdkafka client.

While a callback of librdkafka runs, every call of the same client from another thread waits for it.

Rules:

- One thread at a time uses the client. A background thread takes a free turn only, and never waits.
- Callbacks of the application run in its own thread. A background thread hands them over, and the
  application's thread runs them when it next calls the consumer.
- A background thread that waits for such a callback lends its client: what the callback asks of the
  client runs in the thread that waits.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from queue import Empty, SimpleQueue
from typing import TypeVar

from consumer_sdk._message_step import MessageStep, PythonStep

_TURN_SECONDS = 0.02
_T = TypeVar("_T")


class ApplicationThread:
    """The lock of a client, and the calls that wait for the application's thread."""

    def __init__(self) -> None:
        self.turn = threading.RLock()  # held by the thread that uses the client
        self.step: MessageStep = PythonStep()  # whose `users` counts the turns
        # The calls that wait, and what is set when each has run, if a thread waits for that.
        self.calls: deque[tuple[Callable[[], None], threading.Event | None]] = deque()
        self.is_elsewhere = False  # whether a background thread uses the client now
        # Whether that thread waits for a call that runs here, and what it does for that call.
        self._is_lent = False
        self._requests: SimpleQueue[Callable[[], None]] = SimpleQueue()

    def wait_for_turn(self, timeout: float) -> bool:
        """Acquire the turn within `timeout` seconds, and serve the thread that holds it."""
        deadline = time.monotonic() + timeout
        while not self.turn.acquire(timeout=_TURN_SECONDS):
            self.serve()
            if time.monotonic() >= deadline:
                return False
        self.step.users += 1
        return True

    def release(self) -> None:
        """Give back the turn."""
        self.step.users -= 1
        self.turn.release()

    def use(self, work: Callable[[], _T]) -> _T:
        """Do something with the client while no other thread uses it."""
        if self._is_lent:
            return self._request(work)
        self.wait_for_turn(threading.TIMEOUT_MAX)
        try:
            return work()
        finally:
            self.release()

    def _request(self, work: Callable[[], _T]) -> _T:
        """Do something in the background thread that waits for the call that runs here."""
        outcome: SimpleQueue[tuple[_T | None, BaseException | None]] = SimpleQueue()

        def answer() -> None:
            try:
                outcome.put((work(), None))
            except BaseException as error:
                outcome.put((None, error))

        self._requests.put(answer)
        result, error = outcome.get()
        if error is not None:
            raise error
        return result  # type: ignore[return-value]

    @contextmanager
    def in_background(self) -> Iterator[bool]:
        """Use the client from a background thread; False if it is not free."""
        if not self.turn.acquire(blocking=False):
            yield False
            return
        self.step.users += 1
        self.is_elsewhere = True
        try:
            yield True
        finally:
            self.is_elsewhere = False
            self.release()

    def run_elsewhere(self, work: Callable[[], None], name: str, timeout: float) -> bool:
        """Run `work` in a daemon thread, and serve it; False if it takes longer than `timeout`.

        Nobody else uses the client from then on. Calls that `work` leaves run before the return.
        """
        deadline = time.monotonic() + timeout
        thread = threading.Thread(target=work, name=name, daemon=True)
        self.is_elsewhere = True
        thread.start()
        while thread.is_alive() and time.monotonic() < deadline:
            thread.join(_TURN_SECONDS)
            self.serve()
        ended = not thread.is_alive()
        self.serve()  # the thread may have ended before it was looked at once
        return ended

    def defer(self, callback: Callable[[], None]) -> None:
        """Run a callback in the application's thread: now, or when that next calls the consumer."""
        if self.is_elsewhere:
            self.calls.append((callback, None))
        else:
            callback()

    def call(self, callback: Callable[[], None], timeout: float) -> None:
        """Run a callback in the application's thread, and wait up to `timeout` seconds for it."""
        if not self.is_elsewhere:
            callback()
            return
        done, deadline = threading.Event(), time.monotonic() + timeout
        self.calls.append((callback, done))
        while not done.is_set() and time.monotonic() < deadline:
            try:
                self._requests.get(timeout=_TURN_SECONDS)()
            except Empty:
                continue

    def serve(self) -> None:
        """Run the calls that wait. An error of one leaves those behind it for the next time."""
        while self.calls:
            callback, done = self.calls.popleft()
            self._is_lent = self.is_elsewhere and done is not None
            try:
                callback()
            finally:
                self._is_lent = False
                if done is not None:
                    done.set()
