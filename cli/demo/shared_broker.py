"""A broker that is not the demo's own (`--bootstrap`): the demo's topics are created and deleted.

Rules:

- An existing topic belongs to someone else, so the demo refuses to run before it creates any.
- It deletes its own topics at the end, however it ended. A refused deletion is printed, and hides
  no other error.
- The audit's topic of an installation is made if it is missing, and stays: a reconciler reads it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from typing import Any

from headworks._audit_counting import AUDIT_TOPIC
from headworks._cli.broker_address import admin_client, topics_metadata
from headworks._cli.output import print_status
from headworks.errors import RefusedError, UsageError

_PARTITIONS = 4  # of a new topic of our own broker
# Kafka's retention goes by the events' own time, and the demo's are years old.
_CONFIG = {"retention.ms": "-1"}
_TIMEOUT_SECONDS = 30.0


@contextmanager
def temporary_topics(bootstrap: str, topics: Sequence[str]) -> Iterator[None]:
    """Create `topics` with four partitions each, and delete them at exit.

    Raises UsageError if one of them exists, UnreachableError if no broker answers, and RefusedError
    if the broker creates none.
    """
    from confluent_kafka.cimpl import NewTopic

    there = sorted(topics_metadata(bootstrap).keys() & set(topics))
    if there:
        commands = "; ".join(f"headworks topic delete {name} --yes" for name in there)
        raise UsageError(
            f"the broker at {bootstrap} already has the demo's {', '.join(there)}",
            fix=f"use another broker, or, if they are left from an earlier demo: {commands}",
        )
    admin = admin_client(bootstrap)
    made = admin.create_topics([NewTopic(name, _PARTITIONS, config=_CONFIG) for name in topics])
    refused: dict[str, str] = {}
    try:
        refused = _refusals(made)
        if refused:
            why = "; ".join(f"{topic}: {reason}" for topic, reason in refused.items())
            raise RefusedError(f"the broker at {bootstrap} did not make {why}")
        yield
    finally:
        mine = [topic for topic in topics if topic not in refused]
        deleted = admin.delete_topics(mine, operation_timeout=_TIMEOUT_SECONDS) if mine else {}
        for topic, reason in _refusals(deleted).items():
            print_status(f"the broker at {bootstrap} did not delete the demo's {topic}: {reason}")


def make_audit_topic(bootstrap: str) -> None:
    """Create the audit's topic, with the broker's own settings, unless it exists.

    Raises UnreachableError if no broker answers, and RefusedError if it refuses.
    """
    from confluent_kafka.cimpl import NewTopic

    if AUDIT_TOPIC in topics_metadata(bootstrap):
        return
    admin = admin_client(bootstrap)  # kept until it has answered
    made = admin.create_topics([NewTopic(AUDIT_TOPIC, _PARTITIONS)])
    for topic, reason in _refusals(made).items():
        if topic not in topics_metadata(bootstrap):  # a producer there may have been faster
            raise RefusedError(f"the broker at {bootstrap} did not make {topic}: {reason}")


def _refusals(answers: Mapping[str, Future[Any]]) -> dict[str, str]:
    """Return the topics of a request that the broker refused, with the reasons."""
    from confluent_kafka import KafkaException

    found = {}
    for topic, answer in answers.items():
        try:
            answer.result(_TIMEOUT_SECONDS)
        except KafkaException as error:
            found[topic] = error.args[0].str()
    return found
