"""Log lines about a group that removes its member, or refuses its commits.

librdkafka joins again, and drops the commit, without a word. The application only sees that
messages are repeated.

Rules:

- A commit that a rebalance interrupts is no trouble, because the next one holds its offsets.
- A commit that repeats the offsets of an earlier one is no trouble. librdkafka sends such a one
  after it has left the group.
- The user's own `on_commit` is called as well.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from confluent_kafka import KafkaError, TopicPartition

from headworks._kafka.trouble_log import TroubleLog

_log = logging.getLogger("headworks.consumer")
_PASSING_ERRORS = {
    KafkaError._NO_OFFSET,
    KafkaError.REBALANCE_IN_PROGRESS,
    KafkaError.STALE_MEMBER_EPOCH,
}
_SESSION_TIMEOUT = "session.timeout.ms", 45_000


class GroupTrouble:
    """The reports of one member, whose librdkafka client has these properties."""

    def __init__(self, properties: Mapping[str, Any]) -> None:
        self._group = properties["group.id"]
        self._session = properties.get(*_SESSION_TIMEOUT)
        self._forward: Callable[..., object] | None = properties.get("on_commit")
        self._log = TroubleLog(_log)
        self._committed: dict[tuple[str, int], int] = {}  # the offset of each partition

    @property
    def callbacks(self) -> dict[str, Any]:
        """The properties of librdkafka by which its client reports here."""
        return {"on_commit": self.committed}

    def lost(self, partitions: Sequence[TopicPartition]) -> None:
        """Report partitions that the group took without asking."""
        self._log.warn(
            "lost",
            f"the group {self._group!r} removed this member, which joins again. It lost partitions"
            f" {_names(partitions)}, and the messages since its last commit are repeated. No"
            f" heartbeat came within session.timeout.ms ({self._session}), or a broker restarted."
            " fix: if the machine or the network stands still for longer, raise it in `config`",
        )

    def committed(self, error: KafkaError | None, partitions: Sequence[TopicPartition]) -> None:
        """Take the outcome of a commit: the `on_commit` of the client."""
        refused = []
        for each in partitions:
            place = each.topic, each.partition
            if error is None and each.error is None:
                self._committed[place] = each.offset
            elif _is_trouble(error or each.error) and 0 <= each.offset != self._committed.get(
                place
            ):
                refused.append(each)
        if refused:
            reason = error or refused[0].error
            assert reason is not None
            self._log.warn(
                f"commit {reason.name()}",
                f"the offsets of partitions {_names(refused)} were not committed for"
                f" the group {self._group!r}: {reason.str()}; messages may be repeated",
            )
        if self._forward is not None:
            self._forward(error, partitions)


def _is_trouble(error: KafkaError | None) -> bool:
    return error is not None and error.code() not in _PASSING_ERRORS


def _names(partitions: Sequence[TopicPartition]) -> str:
    names = [f"{each.topic}/{each.partition}" for each in partitions]
    return ", ".join(names[:5]) + (f", and {len(names) - 5} more" if len(names) > 5 else "")
