"""One function a screen: from a request to its page. No route changes anything."""

from __future__ import annotations

from console.app.ask import Ask
from console.app.page import Page
from console.views.topics import topic_list

__all__ = ["SCREENS", "topics"]


def topics(ask: Ask) -> Page:
    """The list of topics."""
    broker, registry, loads = (
        ask.sources.topics.latest,
        ask.sources.subjects.latest,
        ask.sources.loads.latest,
    )
    view = topic_list(broker.value, registry.value, loads.value, ask.sight, ask.wanted())
    states = (broker.state, registry.state, loads.state)
    return Page("topics.html", "Topics", view, "headworks topic list", states, live=True)


SCREENS = {
    "/topics": topics,
}
