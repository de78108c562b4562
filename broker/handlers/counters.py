"""What a broker counts while it works: plain numbers, which the server's metrics read.

Rules: counting costs nanoseconds and never fails. What the log knows anyway (offsets, sizes) is
not counted again. Labels are API keys, error codes and a few fixed words: never what a client
makes up.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Container, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

__all__ = ["BOUNDS", "BrokerCounters", "Histogram"]

# seconds; the last bucket of a histogram is what takes longer
BOUNDS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0)


class Histogram:
    """How often something took how long."""

    __slots__ = ("counts", "total")

    def __init__(self) -> None:
        self.counts = [0] * (len(BOUNDS) + 1)
        self.total = 0.0

    def observe(self, seconds: float, times: int = 1) -> None:
        """It took so long, so many times."""
        self.counts[bisect_left(BOUNDS, seconds)] += times
        self.total += seconds * times


@dataclass(slots=True)
class BrokerCounters:
    """Counted since the start; only grow."""

    requests: Counter[int] = field(default_factory=Counter)  # by API key
    errors: Counter[tuple[int, int]] = field(default_factory=Counter)  # by API key, error code
    denied: Counter[int] = field(default_factory=Counter)  # by API key
    seconds: defaultdict[int, Histogram] = field(default_factory=lambda: defaultdict(Histogram))
    flushes: Histogram = field(default_factory=Histogram)  # written by the flusher's thread alone
    logins: Counter[tuple[str, str]] = field(default_factory=Counter)  # by mechanism, outcome
    failed: Counter[str] = field(default_factory=Counter)  # connections closed, by the reason
    fetched: Counter[str] = field(default_factory=Counter)  # bytes of batches, by topic
    received_bytes: int = 0
    sent_bytes: int = 0
    accepted: int = 0
    refused: int = 0  # connections over the limit

    def forget_topics(self, served: Container[str]) -> None:
        """Forget what was counted of topics that are not served any more."""
        for topic in [name for name in self.fetched if name not in served]:
            del self.fetched[topic]

    def count_errors(self, api: int, answer: Mapping[str, Any]) -> None:
        """Count every error in the fields of an answer."""
        for code in _codes(answer):
            self.errors[api, code] += 1


def _codes(fields: Mapping[str, Any]) -> Iterator[int]:
    code = fields.get("error_code", 0)
    if code:
        yield int(code)
    for value in fields.values():
        if isinstance(value, list):
            for item in value:
                if isinstance(item, Mapping):
                    yield from _codes(item)
