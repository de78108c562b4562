"""The message that the application has, and the step to the next one that needs no waiting.

Rules:

- The compiled form takes the step for a member that a broker balances. `Consumer._buffered` and
  `Membership.exchange` define the result. They take the step of other members, and without a
  compiler.
- While `users` counts a turn at the client, the compiled form takes no message. `exchange` waits
  for the turn of another thread instead.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

import confluent_kafka

from headworks._native import messages

if TYPE_CHECKING:
    from headworks._native._messages import CompiledStep

Raw = confluent_kafka.Message


class MessageStep(Protocol):
    """The state of one member, or of one stream."""

    last: Raw | None
    """What the application has, and has not processed yet."""
    current: Raw | None
    """What the member returned last; None once its partition is lost, and once it is processed."""
    beside: Callable[[Raw], None] | None
    """What takes each processed message, if messages are handled beside each other."""
    asked: int
    """How often the application has asked for a message."""
    users: int
    """Turns at the client; see `ApplicationThread`."""
    is_left: bool
    """Whether the background thread has left the member to the group."""

    def mark(self, message: Raw, /) -> None:
        """Note a message that is processed, unless its partition was lost."""

    def take_processed(self) -> list[Raw]:
        """Return the messages whose offsets are to be stored, in their order, and forget them.

        One that another of its partition follows may be missing.
        """


class PythonStep:
    """See `MessageStep`."""

    def __init__(self) -> None:
        self.last: Raw | None = None
        self.current: Raw | None = None
        self.beside: Callable[[Raw], None] | None = None
        self.asked = self.users = 0
        self.is_left = False
        self._processed: deque[Raw] = deque()

    def mark(self, message: Raw, /) -> None:
        """See `MessageStep`."""
        if self.beside is not None:
            self.beside(message)
        elif self.current is message:
            self._processed.append(message)
            self.current = None

    def take_processed(self) -> list[Raw]:
        """See `MessageStep`."""
        return [self._processed.popleft() for _ in range(len(self._processed))]


def new_step(
    fetched: deque[Raw], waiting: deque[Any], put_back: Callable[[Raw], None]
) -> MessageStep:
    """Return the step through the messages in `fetched`; calls in `waiting` come before them."""
    if messages is not None:
        try:
            return messages.CompiledStep(confluent_kafka.Message, fetched, waiting, put_back)
        except (AttributeError, TypeError):  # another release of the client
            pass
    return PythonStep()


def compiled_step(
    step: MessageStep,
    read: Callable[[Raw], Any],
    ended: dict[int, int],
    outcome: int,
    count: Callable[[Raw, int], Callable[[int, int], bool] | None] | None,
) -> CompiledStep | None:
    """Return a step in its compiled form, which reads messages and counts their ends; else None.

    An end is counted in `ended` under `outcome`, and by `count`. `count` may return a
    function, which then counts the messages of the same topic and framing by timestamp and size.
    If it returns False, `count` is called again.
    """
    if messages is None or not isinstance(step, messages.CompiledStep):
        return None
    step.connect(read, ended, outcome, count)
    return step
