"""The topics to which the members of a consumer group subscribe, as they were last seen.

Rule: a name that no topic has is a subscription too. The topic may be created later.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from uuid import UUID

from headworks._broker.groups.assignors import OwnedPartition
from headworks._broker.groups.consumer_members import SubscribableTopics


class GroupSubscriptions:
    """The subscriptions of all members of a group, and the shapes of their topics."""

    def __init__(self) -> None:
        self._names: Counter[str] = Counter()  # by how many members
        self._shapes: dict[str, tuple[UUID, int]] = {}  # ids and partitions of those that exist
        self._seen_at = -1  # the version of the topics at that time

    @property
    def names(self) -> set[str]:
        """The names to which somebody subscribes."""
        return set(self._names)

    @property
    def sizes(self) -> dict[UUID, int]:
        """The numbers of partitions of the topics that exist."""
        return dict(self._shapes.values())

    def replace(self, before: frozenset[str], after: frozenset[str]) -> None:
        """Note that a member subscribes to other names than before."""
        if before != after:
            self._names.update(after)
            self._names -= Counter(before)
            self._seen_at = -1

    def follow(self, topics: SubscribableTopics) -> bool:
        """Look at the topics, unless nothing happened; return whether a subscribed one changed."""
        if self._seen_at == topics.version:
            return False
        found = {name: topics.named(name) for name in self._names}
        before, self._seen_at = self._shapes, topics.version
        self._shapes = {
            name: (topic.topic_id, topic.count)
            for name, topic in found.items()
            if topic is not None
        }
        return self._shapes != before

    def ids(self, names: Iterable[str]) -> frozenset[UUID]:
        """Return the ids of the named topics that exist."""
        return frozenset(self._shapes[name][0] for name in names if name in self._shapes)

    def with_names(self, partitions: Iterable[OwnedPartition]) -> list[tuple[str, int]]:
        """Return partitions by the names of their topics, if these exist."""
        names = {topic_id: name for name, (topic_id, _) in self._shapes.items()}
        return [(names[topic], index) for topic, index in partitions if topic in names]
