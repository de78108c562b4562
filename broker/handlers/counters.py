"""The counters of a broker: plain numbers, which the metrics read.

Rules: counting takes nanoseconds and never fails. Offsets and sizes are not counted: the log knows
them. Labels are API keys, error codes, and a few fixed words, never text from a client.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Container, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

# seconds; a histogram has one more bucket, for longer durations
BOUNDS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0)


class Histogram:
    """Counts of durations by bucket, and their sum."""

    __slots__ = ("counts", "total")

    def __init__(self) -> None:
        self.counts = [0] * (len(BOUNDS) + 1)
        self.total = 0.0

    def observe(self, seconds: float, times: int = 1) -> None:
        """Count a duration, `times` times."""
        self.counts[bisect_left(BOUNDS, seconds)] += times
        self.total += seconds * times


@dataclass(slots=True)
class BrokerCounters:
    """Counted since the start; the numbers only grow."""

    requests: Counter[int] = field(default_factory=Counter)  # by API key
    errors: Counter[tuple[int, int]] = field(default_factory=Counter)  # by API key, error code
    denied: Counter[int] = field(default_factory=Counter)  # by API key
    seconds: defaultdict[int, Histogram] = field(default_factory=lambda: defaultdict(Histogram))
    flushes: Histogram = field(default_factory=Histogram)  # written by the flusher's thread alone
    logins: Counter[tuple[str, str]] = field(default_factory=Counter)  # by mechanism, outcome
    failed: Counter[str] = field(default_factory=Counter)  # connections closed, by the reason
    fetched: Counter[str] = field(default_factory=Counter)  # bytes of batches, by topic
    dead_letters: Counter[str] = field(default_factory=Counter)  # by the topic that refused them
    received_bytes: int = 0
    sent_bytes: int = 0
    accepted: int = 0
    refused: int = 0  # connections over the limit

    def forget_topics(self, served: Container[str]) -> None:
        """Forget the counters of topics that are not served any more."""
        for counter in (self.fetched, self.dead_letters):
            for topic in [name for name in counter if name not in served]:
                del counter[topic]

    def count_errors(self, api: int, answer: Mapping[str, Any]) -> None:
        """Count every error code in the fields of a reply."""
        for code in _codes(answer):
            self.errors[api, code] += 1


def _codes(fields: Mapping[str, Any]) -> Iterator[int]:
    code = fields.get("error_code", 0) or fields.get("partition_error_code", 0)
    if code:
        yield int(code)
    for value in fields.values():
        if isinstance(value, list):
            for item in value:
                if isinstance(item, Mapping):
                    yield from _codes(item)
