"""The settings of a group member, and the memberships that they make.

Rules: `session.timeout.ms` and `max.poll.interval.ms` mean the same for both kinds of group.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from consumer_sdk._arguments import check_seconds
from consumer_sdk._broker_membership import BrokerMembership
from consumer_sdk._fetch_buffer import FetchLimits
from consumer_sdk._membership import OnPartitions, Start
from consumer_sdk._poison import DeadLetterWriter
from consumer_sdk._zookeeper_group import MemberTiming, ZooKeeperMember, ZooKeeperStream
from consumer_sdk._zookeeper_group.subscription import subscription
from headworks._kafka.client_properties import READ_AHEAD
from headworks._zookeeper import MemberNode
from headworks.errors import UsageError

_NEW_TOPICS_MS = 10_000


@dataclass(frozen=True, slots=True)
class GroupConfig:
    """The settings of a member, as `Consumer` received them."""

    group: str
    client: Mapping[str, Any]  # properties of librdkafka that name the brokers
    topics: Sequence[str]
    sources: Mapping[str, str]  # the topic of each of them that is a retry topic
    matching: str | None
    excluding: str | None
    start: Start
    limits: FetchLimits  # of what is fetched and not returned yet
    commit_every: float | None
    dead_letter_topic: str | None
    on_assigned: OnPartitions | None
    on_revoked: OnPartitions | None
    config: Mapping[str, Any]  # further properties of librdkafka; they win

    def __post_init__(self) -> None:
        """Raise UsageError for a wrong time, and for a share group, which librdkafka ignores."""
        check_seconds("commit_every", self.commit_every)
        named = [name for name in self.config if name.startswith("share.")]
        if str(self.config.get("group.protocol")).lower() == "share":
            named.append("group.protocol")
        if named:
            raise UsageError(
                f"{named[0]} in `config` asks for a share group, which a Consumer cannot join",
                fix=f"remove {named[0]}. For more workers than partitions, handle messages with"
                " `concurrency`",
            )

    def broker_membership(self) -> BrokerMembership:
        """Return a membership in a group that a broker balances."""
        properties = self._properties(auto_commit=self.commit_every is not None)
        if self.matching is not None:
            properties.setdefault("topic.metadata.refresh.interval.ms", _NEW_TOPICS_MS)
        if self.excluding is not None:
            if properties.get("group.protocol") == "consumer":
                raise UsageError(
                    "`excluding` does not work with group.protocol=consumer: the broker matches the"
                    " topics, and knows no exceptions",
                    fix="write `matching` so that it leaves them out, or remove group.protocol",
                )
            properties["topic.blacklist"] = _whole(self.excluding)
        topics = [_whole(self.matching)] if self.matching is not None else list(self.topics)
        return BrokerMembership(
            properties, topics, self.limits, self.start, self.on_assigned, self.on_revoked
        )

    def zookeeper_membership(self, zookeeper: str) -> ZooKeeperStream:
        """Return the first stream of a member of a decentralized group; the first poll joins it."""
        timing = MemberTiming(
            session_seconds=int(self.config.get("session.timeout.ms", 6_000)) / 1000,
            commit_seconds=self.commit_every,
            release_seconds=int(self.config.get("max.poll.interval.ms", 300_000)) / 1000,
        )
        self._subscription(1)  # reports a wrong filter before anything is opened
        member = ZooKeeperMember(zookeeper, self.group, self._subscription, timing)
        return self.new_stream(member, first=True)

    def new_stream(self, member: ZooKeeperMember, *, first: bool = False) -> ZooKeeperStream:
        """Return one more stream of a member."""
        properties = self._properties(auto_commit=False)
        properties.setdefault("topic.metadata.refresh.interval.ms", _NEW_TOPICS_MS)
        return ZooKeeperStream(
            member,
            properties,
            self.limits,
            self.start,
            self.on_assigned,
            self.on_revoked,
            owns_member=first,
        )

    @property
    def reader(self) -> Mapping[str, Any]:
        """Properties of librdkafka for a client that reads as this member, outside of the group."""
        return {**self.client, **self.config, "group.id": self.group}

    def dead_letter_writer(self) -> DeadLetterWriter:
        """Return a writer of this group's dead letters; it connects at the first one."""
        return DeadLetterWriter(
            self.client, group=self.group, topic=self.dead_letter_topic, sources=self.sources
        )

    def _subscription(self, streams: int) -> MemberNode:
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
    """Return a regular expression of librdkafka that matches whole names."""
    return f"^({pattern})$"
