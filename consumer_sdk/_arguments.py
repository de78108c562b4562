"""The arguments of a consumer, checked where they are given.

Rule: every wrong argument is a UsageError here. librdkafka ignores some of them, and ends the
process on an empty group and on text with a lone surrogate.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from datetime import datetime

from headworks._choice import check_text
from headworks._kafka.retry_topics import is_legal_topic
from headworks.errors import UsageError

_STARTS = ("earliest", "latest")
_MEMBERSHIPS = ("broker", "zookeeper")


def check_sources(
    events: object, topics: object, matching: object, excluding: object, *, redriven: bool
) -> None:
    """Raise UsageError unless one of the three says what to read."""
    for name, given in (("events", events), ("topics", topics)):
        if isinstance(given, type | str):
            raise UsageError(f"{name} is {given!r}, and not a list", fix=f"use {name}=[..]")
    for topic in topics if isinstance(topics, Iterable) else ():
        if not isinstance(topic, str) or not is_legal_topic(topic):
            raise UsageError(
                f"topics has {topic!r}, which no topic is named",
                fix="use letters, digits, '.', '_', and '-', or `matching` for an expression",
            )
    for name, text in (("matching", matching), ("excluding", excluding)):
        if isinstance(text, str):
            check_text(text, name)
    if sum(map(bool, (events, topics, matching))) != 1:
        raise UsageError(
            "a Consumer reads either `events`, `topics` or what is `matching`",
            fix="give one of them",
        )
    if redriven and matching:
        raise UsageError(
            "`redriven` needs the names of the topics, and `matching` gives none",
            fix="give `events` or `topics`, or redrive to the topic itself",
        )


def check_group(group: object) -> None:
    """Raise UsageError for a group without a name."""
    if not isinstance(group, str) or not group:
        raise UsageError(
            f"group is {group!r}, and every consumer needs the name of its group",
            fix="give a name; if it comes from the environment, set the variable",
        )
    check_text(group, "group")


def check_member(
    group: object,
    kind: object,
    start: object,
    application: object,
    max_poll_records: object,
) -> None:
    """Raise UsageError for a wrong group, membership, start, name of the program, or limit."""
    check_group(group)
    if application is not None and (not isinstance(application, str) or not application):
        raise UsageError(f"application is {application!r}", fix="give a name, or leave it out")
    if kind not in _MEMBERSHIPS:
        raise UsageError(f"membership is {kind!r}", fix="use 'broker' or 'zookeeper'")
    if isinstance(start, datetime):
        if start.tzinfo is None:
            raise UsageError("`start` has no time zone", fix="give an aware datetime, e.g. in UTC")
    elif start not in _STARTS:
        raise UsageError(
            f"start is {start!r}", fix="use 'earliest', 'latest', or an aware datetime"
        )
    if not isinstance(max_poll_records, int) or max_poll_records < 1:
        raise UsageError(
            f"max_poll_records is {max_poll_records!r}", fix="give a whole number of at least 1"
        )


def check_seconds(name: str, seconds: object) -> None:
    """Raise UsageError for a time that is negative, infinite, or not a number."""
    if seconds is None:
        return
    if not isinstance(seconds, int | float) or not 0 <= seconds < math.inf:
        raise UsageError(f"{name} is {seconds!r}", fix="give seconds, or None")
