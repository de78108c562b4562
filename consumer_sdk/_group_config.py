"""Joining a group, in either way: what a consumer was told, as a membership.

Rules: the properties of librdkafka that name a thing of both kinds mean it in both:
`session.timeout.ms` and `max.poll.interval.ms`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from consumer_sdk._membership import BrokerMembership, OnPartitions, Start
from consumer_sdk._zookeeper_group import MemberTiming, ZooKeeperMember, ZooKeeperStream
from consumer_sdk._zookeeper_group.subscription import subscription
from headworks._kafka.client_properties import READ_AHEAD
from headworks._zookeeper import MemberNode

__all__ = ["GroupConfig"]

_NEW_TOPICS_MS = 10_000


@dataclass(frozen=True, slots=True)
class GroupConfig:
    """A group, what is wanted of it, and how."""

    group: str
    client: Mapping[str, Any]
    topics: Sequence[str]
    matching: str | None
    excluding: str | None
    start: Start
    commit_every: float | None
    on_assigned: OnPartitions | None
    on_revoked: OnPartitions | None
    config: Mapping[str, Any]

    def broker_membership(self) -> BrokerMembership:
        """Join a group that a broker balances."""
        properties = self._properties(auto_commit=self.commit_every is not None)
        if self.matching is not None:
            properties.setdefault("topic.metadata.refresh.interval.ms", _NEW_TOPICS_MS)
        if self.excluding is not None:
            properties["topic.blacklist"] = _whole(self.excluding)
        topics = [_whole(self.matching)] if self.matching is not None else list(self.topics)
        return BrokerMembership(properties, topics, self.start, self.on_assigned, self.on_revoked)

    def zookeeper_membership(self, zookeeper: str) -> ZooKeeperStream:
        """Join a group that balances itself; it is in it from the first poll on."""
        timing = MemberTiming(
            session_seconds=int(self.config.get("session.timeout.ms", 6_000)) / 1000,
            commit_seconds=self.commit_every,
            release_seconds=int(self.config.get("max.poll.interval.ms", 300_000)) / 1000,
        )
        self._wanted(1)  # a wrong filter is said before anything is opened
        member = ZooKeeperMember(zookeeper, self.group, self._wanted, timing)
        return self.new_stream(member, first=True)

    def new_stream(self, member: ZooKeeperMember, *, first: bool = False) -> ZooKeeperStream:
        """One more stream of a member."""
        properties = self._properties(auto_commit=False)
        properties.setdefault("topic.metadata.refresh.interval.ms", _NEW_TOPICS_MS)
        return ZooKeeperStream(
            member,
            properties,
            self.start,
            self.on_assigned,
            self.on_revoked,
            owns_member=first,
        )

    def _wanted(self, streams: int) -> MemberNode:
        return subscription(self.topics, self.matching, self.excluding, streams)

    def _properties(self, *, auto_commit: bool) -> dict[str, Any]:
        return {
            **READ_AHEAD,
            **self.client,
            "group.id": self.group,
            "auto.offset.reset": self.start if isinstance(self.start, str) else "earliest",
            "enable.auto.commit": auto_commit,
            "auto.commit.interval.ms": int((self.commit_every or 0) * 1000),
            "enable.auto.offset.store": False,
            "log_level": 2,
            **self.config,
        }


def _whole(pattern: str) -> str:
    """A regular expression of librdkafka that matches whole names."""
    return f"^({pattern})$"
