"""The readers of a topic, for one principal: those to name, and whether there are others.

Rule: a group that the principal may not see is never named, and never denied either.
"""

from __future__ import annotations

from headworks._ci.verdict import DownstreamConsumer
from headworks._console.app.request import PageRequest
from headworks._console.sources.topic_readers import readers_of


def readers_for(request: PageRequest, topic: str | None) -> list[DownstreamConsumer]:
    """Return the readers of a topic that the principal may see."""
    if topic is None or not request.visibility.topic(topic):
        return []
    known = request.sources.groups.latest.value
    names = known.by_topic.get(topic, ()) if known else ()
    seen = [name for name in names if request.visibility.group(name)]
    return readers_of(topic, request.sources.governance(), seen)


def has_hidden_readers(request: PageRequest, topic: str | None) -> bool:
    """Return whether groups read a topic that the principal may not see."""
    known = request.sources.groups.latest.value
    if topic is None or known is None or not request.visibility.topic(topic):
        return False
    return not all(request.visibility.group(name) for name in known.by_topic.get(topic, ()))
