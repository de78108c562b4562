"""Topics in memory, for groups that the broker assigns."""

from __future__ import annotations

import re
from dataclasses import dataclass
from uuid import UUID


@dataclass
class FakeTopic:
    """A topic with so many partitions."""

    name: str
    count: int
    topic_id: UUID


class FakeTopics:
    """The topics that exist, which a test may change by `set`."""

    def __init__(self, **counts: int) -> None:
        self.version = 0
        self.topics: dict[str, FakeTopic] = {}
        for name, count in counts.items():
            self.set(name, count)

    def set(self, name: str, count: int | None) -> None:
        """Create a topic, give it so many partitions, or delete it (None)."""
        self.version += 1
        if count is None:
            del self.topics[name]
        elif name in self.topics:
            self.topics[name].count = count
        else:
            self.topics[name] = FakeTopic(name, count, UUID(int=self.version))

    def named(self, name: str) -> FakeTopic | None:
        """As the broker's."""
        return self.topics.get(name)

    def matching(self, regex: str) -> frozenset[str]:
        """As the broker's, by Python's own expressions."""
        return frozenset(name for name in self.topics if re.fullmatch(regex, name))
