"""A consumer for users' tests: it replays events, and needs no broker.

Rules: a message counts as processed exactly when it does with a real consumer. Nothing is decoded.
"""

from __future__ import annotations

import asyncio
import math
import threading
import time
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, TypeVar

from consumer_sdk._consumer import Consumer
from consumer_sdk._message import Message, Partition
from consumer_sdk._offsets import SeekTarget, check_assigned, milliseconds_of
from consumer_sdk._outcomes import Ending
from headworks._audit_counting.outcomes import CONSUMED, DEAD, OUTCOMES, RETRIED, SKIPPED
from headworks.codec import EventType
from headworks.errors import UsageError

__all__ = ["ReplayingConsumer"]

T = TypeVar("T")
_TOPIC = "replayed"
_PAUSED_SECONDS = 0.01  # so that a program that polls while all is paused does not spin


class ReplayingConsumer(Consumer[T]):
    """Replaces a Consumer, and is one for a type checker; iteration ends after the last event.

    Each of `events` becomes a message of partition 0, at the next offset. `messages` follow as they
    are. `processed` holds the messages that the application processed, and `rejected` those that it
    rejected with the reason. `put_off` holds those that a handler retries later with the delay in
    seconds, and `commits` how often it committed.
    """

    skipped = 0  # messages that were skipped or rejected

    def __init__(self, events: Iterable[T] = (), *, messages: Iterable[Message[T]] = ()) -> None:
        self._messages = [_message(event, offset) for offset, event in enumerate(events)]
        self._messages += messages
        # The places in `_messages` of those to return, in order.
        self._pending = deque(range(len(self._messages)))
        # The place of the last message that was returned, unless it has ended or was handed over.
        self._given: int | None = None
        self.processed: list[Message[T]] = []
        self.rejected: list[tuple[Message[T], str]] = []
        self.put_off: list[tuple[Message[T], int]] = []
        self.commits = 0
        self._paused: set[Partition] = set()
        self._counting = threading.Lock()  # handlers may end messages beside each other

    def poll(self, timeout: float) -> Message[T] | None:
        """Return the next message, or None after the last one."""
        self._take_back()
        at = self._next
        if at is None:
            if self._pending:
                time.sleep(min(timeout, _PAUSED_SECONDS))
            return None
        self._pending.remove(at)
        self._given = at
        return self._messages[at]

    async def apoll(self, timeout: float) -> Message[T] | None:
        """Do what `poll` does."""
        if self._pending and self._next is None:
            await asyncio.sleep(min(timeout, _PAUSED_SECONDS))
        return self.poll(0.0)

    def _buffered(self) -> Message[T] | None:
        return self.poll(0.0)

    @property
    def _next(self) -> int | None:
        """The place of the next message whose partition is not paused, or None."""
        pending = self._pending
        if not self._paused:
            return pending[0] if pending else None
        free = (at for at in pending if _place(self._messages[at]) not in self._paused)
        return next(free, None)

    @property
    def _unended(self) -> Message[T] | None:
        """The last message that was returned, unless it has ended or was handed over."""
        return None if self._given is None else self._messages[self._given]

    def reject(self, reason: str, error: BaseException | None = None) -> None:  # noqa: ARG002
        """Note the last message in `rejected`; UsageError if there is none."""
        if self._unended is None:
            raise UsageError("there is no message to reject", fix="reject the one that poll gave")
        self.rejected.append((self._unended, reason))
        self.skipped += 1
        self._given = None

    def pause(self, partitions: Sequence[Partition]) -> None:
        """Return no message of these partitions until `resume`."""
        self._paused |= set(partitions)

    def resume(self, partitions: Sequence[Partition]) -> None:
        """Return messages of these partitions again."""
        self._paused -= set(partitions)

    def _end_last(self, ending: Ending) -> None:
        assert self._unended is not None
        self._end(self._unended, ending)
        self._given = None

    def _return_last(self) -> None:
        assert self._given is not None
        self._pending.appendleft(self._given)
        self.pause([_place(self._messages[self._given])])
        self._given = None

    def _hand_over(self) -> Any:
        message, self._given = self._unended, None
        return message

    def _stay(self) -> None: ...

    def _window(self, partition: tuple[str, int]) -> int:  # noqa: ARG002 - all are in memory anyway
        return 0

    def _begin(self, ticket: Any) -> bool:
        return ticket is not None

    def _end(self, ticket: Any, ending: Ending) -> None:
        with self._counting:
            self.skipped += ending.skips
        if ending.outcome == DEAD:
            self.rejected.append((ticket, ending.reason))
        elif ending.outcome == RETRIED:
            self.put_off.append((ticket, ending.delay))
        elif not ending.skips:
            self.processed.append(ticket)

    def rewind(self, to: SeekTarget) -> None:
        """Continue from an end, a time, or offsets in the partitions of the messages."""
        moved = self._moved(to)
        if self._unended is not None and _place(self._unended) not in moved:
            self._take_back()
        self._given = None
        pending = {at for at in self._pending if _place(self._messages[at]) not in moved}
        for at, message in enumerate(self._messages):
            if message.offset >= moved.get(_place(message), message.offset + 1):
                pending.add(at)
        self._pending = deque(sorted(pending))

    def _moved(self, to: SeekTarget) -> Mapping[Partition, float]:
        """Return the offset that a target means in each partition that it moves."""
        if isinstance(to, Mapping):
            check_assigned(to, self.assignment)
            return {Partition(*place): offset for place, offset in to.items()}
        if not isinstance(to, datetime):
            return dict.fromkeys(self.assignment, 0 if to == "earliest" else math.inf)
        found: dict[Partition, float] = dict.fromkeys(self.assignment, math.inf)
        since = milliseconds_of(to)
        for message in self._messages:
            if message.timestamp >= since:
                place = _place(message)
                found[place] = min(found[place], message.offset)
        return found

    @property
    def totals(self) -> Mapping[str, int]:
        """The messages that ended, by outcome."""
        dead = len(self.rejected)
        counts = {CONSUMED: len(self.processed), SKIPPED: self.skipped - dead, DEAD: dead}
        return {OUTCOMES[end]: n for end, n in {**counts, RETRIED: len(self.put_off)}.items()}

    @property
    def assignment(self) -> list[Partition]:
        """The partitions of all messages."""
        return sorted({_place(each) for each in self._messages})

    def commit(self) -> None:
        """Count a commit; the last message is processed."""
        self._take_back()
        self.commits += 1

    def streams(self, count: int) -> list[Consumer[T]]:
        """Return this consumer; UsageError for more streams than one."""
        if count != 1:
            raise UsageError("a ReplayingConsumer has one stream", fix="make one for each stream")
        return [self]

    def close(self, timeout: float = 0.0) -> None:  # noqa: ARG002 - nothing is waited for
        """End the iteration; the last message is processed."""
        if not self._closed:
            self._closed = True
            self._take_back()

    @property
    def _ended(self) -> bool:
        # The loop asks for one more after the last message, which is processed by that.
        over = self._given is None and not self._pending
        return self._closed or self._stopping or over

    def _drop_last(self) -> None:
        self._given = None

    def skip(self) -> None:
        """Count the last message as skipped."""
        self.skipped += self._given is not None
        self._given = None

    def _take_back(self) -> None:
        if self._unended is not None:
            self.processed.append(self._unended)
            self._given = None


def _place(message: Message[Any]) -> Partition:
    return Partition(message.topic, message.partition)


def _message(event: T, offset: int) -> Message[T]:
    kind = getattr(event, "__headworks__", None)
    if not isinstance(kind, EventType):
        return Message(event, _TOPIC, 0, offset, 0, None, (), 0, None)
    timestamp = kind.event_time(event) if kind.event_time else 0
    key = kind.key(event) if kind.key else None
    return Message(event, kind.topic, 0, offset, timestamp, key, (), 0, None)
