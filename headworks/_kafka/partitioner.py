"""Keep messages without a key away from partitions that cannot be reached.

librdkafka draws any partition for a message without a key. It checks once whether that partition
has a leader, and never whether the leader answers. With one of three brokers dead, a third of these
messages wait until the other brokers notice, and even then one in nine keeps waiting.

Rules:

- While every partition can be reached, librdkafka draws.
- A partition is skipped while it has no leader, or if a connection to its leader failed within the
  last 10 seconds. After that time one message may try again.
- If no partition can be reached, none is skipped.
- A message that is already queued stays with its partition, because a broker may have it.
- librdkafka reports its statistics twice a second. Parsing them delays the sender, and their size
  grows with the partitions: while nothing is wrong, only the part about the brokers is parsed.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Mapping
from typing import Any

from headworks._kafka.broker_silence import brokers_of

ANY = -1
_STATISTICS_INTERVAL_MS = 500
_UNREACHABLE_SECONDS = 10.0
_MESSAGES_IN_A_ROW = 100  # to one partition, so that batches grow


class KeylessPartitioner:
    """Follows the statistics of one client and picks partitions while some cannot be reached."""

    def __init__(self) -> None:
        # The reachable partitions by topic; a topic is missing while all of its partitions are
        self._reachable: dict[str, tuple[int, ...]] = {}
        self._picks = itertools.count()  # how many partitions were picked
        self._updates = 0  # how often statistics arrived: each moves on to the next partition

    def properties(self, properties: Mapping[str, Any]) -> dict[str, Any]:
        """Return `properties` with a statistics callback, which calls theirs after ours."""
        theirs: Callable[[str], object] | None = properties.get("stats_cb")

        def updated(statistics: str) -> None:
            self.update(statistics)
            if theirs is not None:
                theirs(statistics)

        return {
            "statistics.interval.ms": _STATISTICS_INTERVAL_MS,
            **properties,
            "stats_cb": updated,
        }

    def update(self, statistics: str) -> None:
        """Take over librdkafka's statistics, a JSON text."""
        self._reachable = (
            reachable_partitions(json.loads(statistics)) if _any_unreachable(statistics) else {}
        )
        self._updates += 1

    def partition(self, topic: str) -> int:
        """Return a reachable partition for a message without a key, or `ANY`."""
        partitions = self._reachable.get(topic)
        if partitions is None:
            return ANY
        turn = next(self._picks) // _MESSAGES_IN_A_ROW + self._updates
        return partitions[turn % len(partitions)]


def reachable_partitions(statistics: Mapping[str, Any]) -> dict[str, tuple[int, ...]]:
    """Return the reachable partitions of each topic that also has unreachable ones."""
    failing = {
        broker["nodeid"] for broker in statistics.get("brokers", {}).values() if _fails(broker)
    }
    reachable = {}
    for name, topic in statistics.get("topics", {}).items():
        leaders = {
            partition["partition"]: partition["leader"]
            for partition in topic["partitions"].values()
            if partition["partition"] >= 0
        }
        indexes = sorted(n for n, led in leaders.items() if led >= 0 and led not in failing)
        if 0 < len(indexes) < len(leaders):
            reachable[name] = tuple(indexes)
    return reachable


def _any_unreachable(statistics: str) -> bool:
    """Return whether a broker fails or a partition has no leader, without parsing everything."""
    # Partition -1, which holds messages that have no partition yet, never has a leader.
    if statistics.count('"leader":-1') > statistics.count('"partition":-1,'):
        return True
    brokers = brokers_of(statistics)
    return brokers is None or any(map(_fails, brokers.values()))


def _fails(broker: Mapping[str, Any]) -> bool:
    """Return whether a connection to the broker was tried lately, without success.

    A connection that was closed because it was idle counts as often in `connects` as in
    `disconnects`.
    """
    connected: bool = broker["state"] == "UP"
    attempts: int = broker["connects"] - broker["disconnects"]
    recently = broker["stateage"] < _UNREACHABLE_SECONDS * 1e6  # `stateage` is in microseconds
    return not connected and attempts > 0 and recently
