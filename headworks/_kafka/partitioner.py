"""Where messages without a key go while some of their topic's partitions cannot be reached.

librdkafka draws any partition for a message without a key, looks only once whether it has a leader,
and never whether that leader answers: with one broker of three dead, a third of such messages wait
for it until the others know of its death, and then still one in nine or so. They need not.

Rules: as long as every partition can be reached, librdkafka draws. A partition is left out while it
has no leader, or while connecting to its leader has failed within the last `_DOUBT` seconds; after
that one message may find out. If none is left, none is preferred. What is queued already stays
where it is: nobody can say whether a broker has it. What is known comes from librdkafka's
statistics, which it tells twice a second. Reading them holds up whoever sends, and they have a page
for every partition: only what tells whether anything is wrong is read while nothing is.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Mapping
from typing import Any

__all__ = ["ANY", "Detour", "reachable"]

ANY = -1
_INTERVAL_MS = 500
_DOUBT = 10.0
_IN_A_ROW = 100  # messages to one partition, so that batches grow
_BROKERS = '"brokers":'
_DECODER = json.JSONDecoder()


class Detour:
    """Follows the statistics of one client, and draws partitions while some are out of reach."""

    def __init__(self) -> None:
        self._open: dict[str, tuple[int, ...]] = {}
        self._drawn = itertools.count()
        self._turn = 0

    def client(self, properties: Mapping[str, Any]) -> dict[str, Any]:
        """The properties of a client whose statistics come here, and to who wanted them before."""
        before: Callable[[str], object] | None = properties.get("stats_cb")

        def told(statistics: str) -> None:
            self.see(statistics)
            if before is not None:
                before(statistics)

        return {"statistics.interval.ms": _INTERVAL_MS, **properties, "stats_cb": told}

    def see(self, statistics: str) -> None:
        """What librdkafka tells."""
        self._open = reachable(json.loads(statistics)) if _in_doubt(statistics) else {}
        self._turn += 1

    def partition(self, topic: str) -> int:
        """For a message without a key: a partition that can be reached, or any."""
        partitions = self._open.get(topic)
        if partitions is None:
            return ANY
        return partitions[(next(self._drawn) // _IN_A_ROW + self._turn) % len(partitions)]


def reachable(statistics: Mapping[str, Any]) -> dict[str, tuple[int, ...]]:
    """The partitions that can be reached, of topics of which some can and some cannot."""
    away = {broker["nodeid"] for broker in statistics.get("brokers", {}).values() if _fails(broker)}
    found = {}
    for name, topic in statistics.get("topics", {}).items():
        led = {
            partition["partition"]: partition["leader"]
            for partition in topic["partitions"].values()
            if partition["partition"] >= 0
        }
        there = tuple(sorted(n for n, leader in led.items() if leader >= 0 and leader not in away))
        if 0 < len(there) < len(led):
            found[name] = there
    return found


def _in_doubt(statistics: str) -> bool:
    """Whether a broker fails or a partition has no leader, from a part of the text."""
    at = statistics.find(_BROKERS)
    # Partition -1, where messages wait for a partition, never has one.
    if at < 0 or statistics.count('"leader":-1') > statistics.count('"partition":-1,'):
        return True
    brokers: Mapping[str, Mapping[str, Any]]
    brokers, _ = _DECODER.raw_decode(statistics, at + len(_BROKERS))
    return any(map(_fails, brokers.values()))


def _fails(broker: Mapping[str, Any]) -> bool:
    """Whether a connection was tried lately, in vain.

    A connection that was closed because nobody used it was made as often as it was closed.
    """
    connected: bool = broker["state"] == "UP"
    tried: int = broker["connects"] - broker["disconnects"]
    return not connected and tried > 0 and broker["stateage"] < _DOUBT * 1e6
