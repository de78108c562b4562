"""The retry topics that a consumer reads beside its own, and the topic to which each belongs.

Rules: a consumer starts even if they cannot be created. It logs that, and reads the others.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Any

from consumer_sdk._topic_decoders import topics_of
from headworks._kafka.retry_topics import create_like, redriven_topic
from headworks.errors import RefusedError, UnreachableError

_log = logging.getLogger("headworks.consumer")


def redriven_sources(events: Sequence[type], topics: Sequence[str], group: str) -> dict[str, str]:
    """Return the topic of each redriven topic of a group."""
    return {redriven_topic(topic, group): topic for topic in topics_of(events, topics)}


def create_missing(client: Mapping[str, Any], sources: Mapping[str, str]) -> None:
    """Create the retry topics that do not exist yet; a failure is logged."""
    try:
        if sources:
            create_like(client, sources)
    except (RefusedError, UnreachableError) as error:
        _log.warning("not every retry topic exists: %s", error)
