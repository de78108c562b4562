"""The last message that a consumer returned: how the application ends it, or lets it wait.

Rules: a message ends once. One that is handed over is no longer the last one: its ticket ends it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

import confluent_kafka

from consumer_sdk._loop import MessageLoop
from consumer_sdk._membership import Membership
from consumer_sdk._message import Partition
from consumer_sdk._message_step import MessageStep
from consumer_sdk._outcomes import Ending, MessageOutcomes
from headworks._audit_counting.outcomes import DEAD, SKIPPED
from headworks.errors import UsageError

T = TypeVar("T")


class LastMessage(MessageLoop[T]):
    """A loop whose last message can be rejected, skipped, or handled beside others."""

    _step: MessageStep  # of this membership
    _is_shared = False  # whether messages are handled beside each other
    _membership: Membership
    _outcomes: MessageOutcomes

    @property
    def _last(self) -> confluent_kafka.Message | None:
        """The message that was given out, and is not marked as processed yet."""
        return self._step.last

    @_last.setter
    def _last(self, message: confluent_kafka.Message | None) -> None:
        self._step.last = message

    @property
    def skipped(self) -> int:
        """The messages that were skipped, or written to a dead-letter topic."""
        return self._outcomes.skipped

    def reject(self, reason: str, error: BaseException | None = None) -> None:
        """Write the last message to the dead-letter topic, and count it as dead.

        Use it for a message that decodes but that the application cannot handle. The class of
        `error` is a header, by which `headworks dead-letter` finds it. Raises UsageError if there
        is no such message, and UnreachableError if the broker does not acknowledge it.
        """
        if self._last is None:
            raise UsageError("there is no message to reject", fix="reject the one that poll gave")
        exception = None if error is None else type(error).__name__
        self._end_last(Ending(DEAD, reason, exception))

    def skip(self) -> None:
        """Count the last message as skipped; it is processed."""
        if self._last is not None:
            self._end_last(Ending(SKIPPED))

    def pause(self, partitions: Sequence[Partition]) -> None:
        """Return no message of these partitions until `resume`; the member keeps them.

        A partition that moves to another member and back is no longer paused. Partitions of other
        members are ignored.
        """
        self._membership.set_paused(partitions, paused=True)

    def resume(self, partitions: Sequence[Partition]) -> None:
        """Return messages of paused partitions again."""
        self._membership.set_paused(partitions, paused=False)

    def _end_last(self, ending: Ending) -> None:
        """End the last message."""
        assert self._last is not None
        self._end(self._last, ending)
        self._last = None

    def _return_last(self) -> None:
        """Return the last message again, once its partition is resumed, and pause that."""
        assert self._last is not None
        place = Partition(self._last.topic() or "", self._last.partition() or 0)
        offset, self._last = self._last.offset() or 0, None
        self._membership.resume(place, offset, processed=False)
        self._membership.set_paused([place], paused=True)

    def _hand_over(self) -> Any:
        """Let the last message be handled beside others; return the ticket that ends it."""
        step = self._step
        raw, step.last = step.last, None
        assert raw is not None
        self._is_shared = True
        self._membership.hand_over(raw)
        return raw

    def _stay(self) -> None:
        """Stay in the group while the last handlers work, and no message is asked for."""
        self._membership.stay()

    def _window(self, partition: tuple[str, int]) -> int:
        """Return how many messages were handed over from the first that has not ended on."""
        return self._membership.window(partition)

    def _begin(self, ticket: Any) -> bool:
        """Return whether a handler may begin: whether the message is still this member's."""
        return self._membership.begin(ticket)

    def _end(self, ticket: Any, ending: Ending) -> None:
        """End a message; those that were handed over end in any order."""
        self._outcomes.end_as(ticket, self._membership, ending)

    def _drop_last(self) -> None:
        """Leave the message whose processing raised unprocessed."""
        self._last = None
