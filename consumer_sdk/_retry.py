"""The policy of a handler: how often it is called again, and what ends its message otherwise.

Rule: pure, apart from the handler that it names.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from consumer_sdk._poison import OnPoison
from headworks.errors import UsageError


@dataclass(frozen=True, slots=True)
class Retry:
    """How often and when a handler that raised is called again, with the same message.

    The first pause is `pause` seconds. Each further one is twice as long, up to `longest_pause`.
    All pauses together must be shorter than `max.poll.interval.ms`. After them, the message is put
    off by each delay of `later`, in whole seconds, and attempted again after each. Meanwhile others
    are handled. Exceptions in `never` are not retried.
    """

    attempts: int = 3
    pause: float = 0.5
    longest_pause: float = 30.0
    never: tuple[type[Exception], ...] = ()
    later: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        if self.attempts < 1 or self.pause < 0 or self.longest_pause < 0:
            raise UsageError(
                f"a Retry has {self.attempts} attempts and pauses of {self.pause} to"
                f" {self.longest_pause} s",
                fix="give at least one attempt, and pauses of at least 0",
            )
        if not all(isinstance(delay, int) and delay > 0 for delay in self.later):
            raise UsageError(
                f"a Retry has the delays {self.later!r}",
                fix="give whole seconds of at least 1, such as later=(60, 600)",
            )

    def pause_after(self, attempt: int, error: Exception) -> float | None:
        """Return the seconds until the next attempt; None if there is none."""
        if attempt >= self.attempts or isinstance(error, self.never):
            return None
        return float(min(self.longest_pause, self.pause * 2 ** (attempt - 1)))

    def delay_after(self, count: int, error: Exception) -> int | None:
        """Return by how many seconds a message is put off that was put off `count` times."""
        if count >= len(self.later) or isinstance(error, self.never):
            return None
        return self.later[count]


Retries = Retry | Mapping[type[Exception], Retry]
_ONCE = Retry(attempts=1)


@dataclass(frozen=True, slots=True)
class BatchLimits:
    """A batch is handled when it has `size` messages, or `seconds` after its first one."""

    size: int
    seconds: float

    def __post_init__(self) -> None:
        if self.size < 1 or self.seconds <= 0:
            raise UsageError(
                f"a batch has up to {self.size} messages of {self.seconds} s",
                fix="give a size of at least 1, and more than 0 seconds",
            )


@dataclass(frozen=True, slots=True, eq=False)
class Handler:
    """A function for the events of one class, and its policy.

    It receives a message, or a list of them if `batch` is set. Up to `concurrency` calls of it run
    at once, one for each key.
    """

    function: Callable[[Any], Any]
    retries: Mapping[type[Exception], Retry]
    then: OnPoison
    concurrency: int = 1
    batch: BatchLimits | None = None
    is_async: bool = False  # whether the function returns a coroutine

    def __post_init__(self) -> None:
        if not isinstance(self.concurrency, int) or self.concurrency < 1:
            raise UsageError(
                f"concurrency is {self.concurrency!r}", fix="give a whole number of at least 1"
            )

    def retry(self, error: Exception) -> Retry:
        """Return the policy for an error: that of its first listed class."""
        return next((r for cls, r in self.retries.items() if isinstance(error, cls)), _ONCE)


def handler_of(
    function: Callable[[Any], Any],
    retry: Retries | None,
    then: OnPoison,
    *,
    concurrency: int = 1,
    batch: BatchLimits | None = None,
    is_async: bool = False,
) -> Handler:
    """Return the handler of a function; `retry` is a policy, or one for each exception class."""
    retries = {Exception: retry} if isinstance(retry, Retry) else retry or {}
    if not isinstance(retries, Mapping) or not all(_is_policy(*one) for one in retries.items()):
        raise UsageError(
            f"retry is {retry!r}", fix="give a Retry, or a dict of them by exception class"
        )
    retries = dict(retries)
    return Handler(function, retries, then, concurrency, batch, is_async)


def _is_policy(cls: object, policy: object) -> bool:
    return isinstance(cls, type) and issubclass(cls, Exception) and isinstance(policy, Retry)
