"""The topics that a member reads: by name, or by a filter that also matches later topics.

Rules: pure. Every member evaluates the filters of all others, so that all compute one assignment.
Filters are Python's regular expressions for whole names.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterable, Sequence

from headworks._zookeeper import MemberNode
from headworks.errors import UsageError

_log = logging.getLogger("headworks.consumer")
_EVERYTHING = ".*"


def subscription(
    topics: Sequence[str], matching: str | None, excluding: str | None, streams: int = 1
) -> MemberNode:
    """Return the registration of a member; UsageError for a wrong regular expression."""
    for name, pattern in (("matching", matching), ("excluding", excluding)):
        if pattern is not None:
            try:
                re.compile(pattern)
            except re.error as error:
                raise UsageError(
                    f"`{name}` {pattern!r} is not a regular expression: {error}",
                    fix="it is Python's kind, for whole names of topics: orders|shop[.].*",
                ) from None
    if matching is None:
        return MemberNode(dict.fromkeys(topics, streams))
    if excluding is None:
        return MemberNode(pattern=matching, streams=streams)
    if matching == _EVERYTHING:
        return MemberNode(pattern=excluding, excludes=True, streams=streams)
    return MemberNode(pattern=f"(?!(?:{excluding})\\Z)(?:{matching})", streams=streams)


def wanted(member: MemberNode, topics: Iterable[str]) -> dict[str, int]:
    """Return the number of streams that a member has for each of `topics`."""
    if member.pattern is None:
        there = set(topics)
        return {topic: streams for topic, streams in member.topics.items() if topic in there}
    try:
        pattern = re.compile(member.pattern)
    except re.error as error:
        _log.warning("a member's filter %r is left out: %s", member.pattern, error)
        return {}
    return {
        topic: member.streams
        for topic in topics
        if (pattern.fullmatch(topic) is None) == member.excludes
    }
