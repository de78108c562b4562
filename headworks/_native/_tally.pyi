"""The interface of `_tally.c`; present only if it was compiled."""

from collections.abc import Callable
from typing import Any, Generic, TypeVar

T = TypeVar("T")

SOURCE: str
"""The SHA-256 of the source that was compiled."""

class Tally:
    """As `headworks._audit_counting.tally.PythonTally`."""

    attempted: int
    delivered: int
    bytes: int

    def __new__(
        cls, at: int, start: int, end: int, undelivered: Callable[[Any, Any], None]
    ) -> Tally: ...
    def attach(self, words: memoryview | None, /) -> None: ...
    def attempt(self, timestamp: int, size: int, /) -> bool: ...
    def report(self, error: Any, message: Any, /) -> None: ...

class LatestWindow(Generic[T]):
    """As `headworks._audit_counting.tally.PythonLatestWindow`."""

    def attempt(self, timestamp: int, value: bytes, /) -> T | None: ...
    def hold(self, tally: Tally, counts: T, /) -> None: ...
