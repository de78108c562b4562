"""The changes that administration clients make to topics: create, alter, and delete.

Rules: a broker that does not answer is told apart from one that refuses. A change that was not
confirmed may have happened, and its error says so.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from headworks._cli.broker_address import admin_client
from headworks.errors import RefusedError, UnreachableError, UsageError

_TIMEOUT_SECONDS = 30.0


def create_topic(address: str, topic: str, partitions: int, configs: Mapping[str, str]) -> None:
    """Create a topic with the brokers' default number of replicas."""
    from confluent_kafka.cimpl import NewTopic

    admin = admin_client(address)
    wanted = NewTopic(topic, partitions, config=dict(configs))
    _wait(admin.create_topics([wanted]), address, f"create {topic}")


def delete_topic(address: str, topic: str) -> None:
    """Delete a topic and its messages."""
    admin = admin_client(address)
    _wait(admin.delete_topics([topic]), address, f"delete {topic}")


def alter_configs(
    address: str, topic: str, configs: Mapping[str, str], defaults: Sequence[str]
) -> None:
    """Set `configs`, and return those of `defaults` to the broker's value, all or none of them."""
    from confluent_kafka.admin import (  # type: ignore[attr-defined]
        AlterConfigOpType,
        ConfigEntry,
        ConfigResource,
        ResourceType,
    )

    entries = [
        ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
        for name, value in configs.items()
    ] + [
        ConfigEntry(name, None, incremental_operation=AlterConfigOpType.DELETE) for name in defaults
    ]
    resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=entries)
    admin = admin_client(address)
    _wait(admin.incremental_alter_configs([resource]), address, f"alter {topic}")


def add_partitions(address: str, topic: str, partitions: int) -> None:
    """Give a topic more partitions, so that it has this many."""
    from confluent_kafka.cimpl import NewPartitions

    admin = admin_client(address)
    wanted = NewPartitions(topic, partitions)
    _wait(admin.create_partitions([wanted]), address, f"give {topic} {partitions} partitions")


def config_pair(text: str) -> tuple[str, str]:
    """Read NAME=VALUE. Raises UsageError."""
    name, equals, value = text.partition("=")
    if not name or not equals:
        raise UsageError(f"--config {text!r} is no NAME=VALUE", fix="--config retention.ms=-1")
    return name, value


def _wait(futures: Mapping[Any, Any], address: str, what: str) -> None:
    from confluent_kafka import KafkaError, KafkaException

    for future in futures.values():
        try:
            future.result(_TIMEOUT_SECONDS)
        except TimeoutError:
            raise _no_answer(address, what, f"within {_TIMEOUT_SECONDS:.0f} s") from None
        except KafkaException as error:
            problem = error.args[0]
            if problem.code() < 0:  # librdkafka's own codes: the broker has said nothing
                raise _no_answer(address, what, f"({problem.str()})") from None
            exists = problem.code() == KafkaError.TOPIC_ALREADY_EXISTS
            raise RefusedError(
                f"the broker refused to {what}: {problem.str()}",
                fix="use it, or give another name; see `headworks topic list`" if exists else None,
            ) from None


def _no_answer(address: str, what: str, how: str) -> UnreachableError:
    return UnreachableError(
        f"the broker at {address} did not answer {how} to {what}",
        fix="see `headworks topic list`, and try again if it did not happen",
    )
