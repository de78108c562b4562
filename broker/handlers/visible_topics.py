"""The topics that exist, as a group of consumers needs them for one of its members.

Rule: a regular expression matches only topics that the member's client may read.
"""

from __future__ import annotations

from functools import lru_cache

from headworks._broker.groups import TopicPattern, TopicShape
from headworks._broker.handlers.node import Node, Request
from headworks._kafka.protocol.apis import ApiKey

_MAX_PATTERNS = 256


class VisibleTopics:
    """The topics at the time of a request, for the client that sent it."""

    def __init__(self, node: Node, request: Request) -> None:
        self.version = node.hosted.version
        self._hosted = node.hosted
        self._client = request.client
        self._matched: dict[str, frozenset[str]] = {}  # by expression

    def named(self, name: str) -> TopicShape | None:
        """Return a topic by its name."""
        return self._hosted.topics.get(name)

    def matching(self, regex: str) -> frozenset[str]:
        """Return the names that an expression matches. InvalidPatternError."""
        found = self._matched.get(regex)
        if found is None:
            pattern, sees = _compiled(regex), self._client.sees_topic
            found = self._matched[regex] = frozenset(
                name
                for name in self._hosted.topics
                if pattern.matches(name) and sees(ApiKey.FETCH, name)
            )
        return found


@lru_cache(_MAX_PATTERNS)
def _compiled(regex: str) -> TopicPattern:
    return TopicPattern(regex)
