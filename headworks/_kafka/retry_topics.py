"""The topics that one group alone reads again: their names, and their creation.

Rules: a name holds the topic, the kind, and the group, so that no two groups share such a topic. It
has as many partitions as the topic itself.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from headworks.errors import RefusedError, UnreachableError, UsageError

_LEGAL = re.compile(r"[A-Za-z0-9._-]{1,249}")
_NAME = re.compile(r".+\.(redriven|retry-\d+s)\..+")
_TIMEOUT_SECONDS = 10.0


def is_legal_topic(name: str) -> bool:
    """Return whether a topic may have a name."""
    return _LEGAL.fullmatch(name) is not None


def redriven_topic(topic: str, group: str) -> str:
    """Return the topic of dead letters of `topic` that return to `group` alone."""
    return _legal(f"{topic}.redriven.{group}", group)


def retry_topic(topic: str, group: str, delay: int) -> str:
    """Return the topic of messages of `topic` that `group` handles again after `delay` seconds."""
    return _legal(f"{topic}.retry-{delay}s.{group}", group)


def is_retry_topic(name: str) -> bool:
    """Return whether a topic was named by a function of this module."""
    return _NAME.fullmatch(name) is not None


def create_like(client: Mapping[str, Any], sources: Mapping[str, str]) -> None:
    """Create each topic of `sources` that is missing, with the partitions of its source.

    A source that does not exist yet counts as a topic of one partition. Raises UnreachableError if
    no broker answers, and RefusedError if it does not create a topic.
    """
    from confluent_kafka import KafkaError, KafkaException
    from confluent_kafka.admin import AdminClient
    from confluent_kafka.cimpl import NewTopic

    admin = AdminClient({**client, "log_level": 2})
    try:
        known = admin.list_topics(timeout=_TIMEOUT_SECONDS).topics
    except KafkaException as error:
        raise UnreachableError(f"no broker answers: {error.args[0].str()}") from None
    missing = {name: source for name, source in sources.items() if name not in known}
    wanted = [
        NewTopic(name, len(known[source].partitions) if source in known else 1)
        for name, source in missing.items()
    ]
    for name, created in (admin.create_topics(wanted) if wanted else {}).items():
        try:
            created.result(_TIMEOUT_SECONDS)
        except KafkaException as error:
            if error.args[0].code() != KafkaError.TOPIC_ALREADY_EXISTS:
                raise RefusedError(
                    f"the broker does not create {name}: {error.args[0].str()}",
                    fix=f"create it with as many partitions as {sources[name]}, and let this"
                    " program read and write it",
                ) from None


def _legal(name: str, group: str) -> str:
    if not _LEGAL.fullmatch(name):
        raise UsageError(
            f"group {group!r} gives the topic {name!r}, and no topic may be named so",
            fix="use a group of letters, digits, dots, dashes, and underscores, and short names",
        )
    return name
