"""`headworks topic`: list, create, describe, alter, and delete topics on any Kafka broker."""

from __future__ import annotations

import re
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headworks._cli.broker_address import (
    admin_client,
    bootstrap_servers,
    cluster_metadata,
    missing_topic_error,
    topic_metadata,
    topics_metadata,
)
from headworks._cli.confirmation import YesOption, confirm
from headworks._cli.options import BootstrapOption, RegistryOption
from headworks._cli.output import Format, FormatOption, print_json, print_status, print_table
from headworks._cli.topic_changes import (
    add_partitions,
    alter_configs,
    config_pair,
    create_topic,
    delete_topic,
)
from headworks._settings import resolve
from headworks.errors import FindingsError, RefusedError, UnreachableError, UsageError

if TYPE_CHECKING:
    from headworks._kafka.clients import KafkaConsumer

topic_app = typer.Typer(no_args_is_help=True, help="List, create, alter, and delete topics.")
_TIMEOUT_SECONDS = 10.0
_OFFSETS_TIMEOUT_SECONDS = 5.0
_RETRY_SECONDS = 0.1
_DAMAGE_CONFIG = "headworks.damage"  # a read-only config of each of our brokers, one line a damage
Name = Annotated[str, typer.Argument(help="the topic")]


@topic_app.command("list")
def list_topics(bootstrap: BootstrapOption = None, format: FormatOption = Format.TEXT) -> None:
    """List the topics with their partitions and messages."""
    address = bootstrap_servers(bootstrap)
    found = topics_metadata(address)
    kept = _message_counts(address, found)
    header = ("topic", "partitions", "messages")
    rows = [(name, len(found[name].partitions), kept[name]) for name in sorted(found)]
    if format is Format.JSON:
        print_json([dict(zip(header, row, strict=True)) for row in rows])
    else:
        print_table(header, [["away" if v is None else v for v in row] for row in rows])


@topic_app.command()
def create(
    topic: Name,
    partitions: Annotated[int, typer.Option(min=1, help="number of partitions")] = 4,
    config: Annotated[
        list[str] | None,
        typer.Option(help="topic setting NAME=VALUE, such as cleanup.policy=compact; repeatable"),
    ] = None,
    require_subject: Annotated[
        bool, typer.Option(help="refuse to create it unless TOPIC-value is registered")
    ] = False,
    bootstrap: BootstrapOption = None,
    registry: RegistryOption = None,
) -> None:
    """Create a topic with the brokers' default number of replicas."""
    if require_subject:
        _require_subject(resolve("registry", registry), f"{topic}-value")
    configs = dict(map(config_pair, config or ()))
    address = bootstrap_servers(bootstrap)
    topics_metadata(address)  # raises soon if no broker answers
    create_topic(address, topic, partitions, configs)
    noun = "partition" if partitions == 1 else "partitions"
    print_status(f"created {topic} with {partitions} {noun}")


def _require_subject(url: str, subject: str) -> None:
    from headworks.registry_client import RegistryClient

    if not RegistryClient(url).versions(subject):
        raise FindingsError(
            f"the registry at {url} has no subject {subject}",
            fix="register the schema first (`headworks schema register`), or leave out"
            " --require-subject",
        )


@topic_app.command()
def describe(
    topic: Name, bootstrap: BootstrapOption = None, format: FormatOption = Format.TEXT
) -> None:
    """Show a topic's partitions: the broker, the first and next offset, and the messages.

    The settings that the topic does not take from its brokers follow.

    A partition is `away` if its broker does not answer. It is `refused` if its broker runs but
    does not serve it. Damage that the brokers have found is listed, if you may ask them for it.
    """
    from headworks._kafka.client_properties import client_properties
    from headworks._kafka.clients import KafkaConsumer

    address = bootstrap_servers(bootstrap)
    cluster = cluster_metadata(address)
    found = cluster.topics
    if topic not in found:
        raise missing_topic_error(topic, found)
    consumer = KafkaConsumer({**client_properties(address), "group.id": "headworks-describe"})
    try:
        rows: list[tuple[int | None, ...]] = []
        refused: dict[int, int] = {}
        for partition, known in sorted(found[topic].partitions.items()):
            there = [broker for broker in known.replicas if broker in cluster.brokers]
            if known.leader == -1 and there:
                refused[partition] = there[0]
            ends = None if known.leader == -1 else _offset_bounds(consumer, topic, partition)
            leader = None if known.leader == -1 else known.leader
            if ends is None:
                rows.append((partition, leader, None, None, None))
            else:
                rows.append((partition, leader, *ends, ends[1] - ends[0]))
    finally:
        consumer.close()
    header = ("partition", "broker", "first_offset", "next_offset", "messages")
    damage = _damage(address, topic, sorted(cluster.brokers))
    configs = _own_configs(address, topic)
    if format is Format.JSON:
        rows_as_json = [dict(zip(header, row, strict=True)) for row in rows]
        shown_json = {"topic": topic, "partitions": rows_as_json}
        print_json({**shown_json, "configs": configs, "damage": damage})
    else:
        shown = [("refused" if row[0] in refused else "away", row) for row in rows]
        print_table(header, [[word if v is None else v for v in row] for word, row in shown])
        for name, value in (configs or {}).items():
            print_status(f"setting: {name}={value}")
    for partition, broker in refused.items():
        print_status(f"broker {broker} does not serve {topic}[{partition}]: its log says why")
    for line in damage:
        print_status(f"damaged: {line}")


@topic_app.command()
def alter(
    topic: Name,
    config: Annotated[
        list[str] | None, typer.Option(help="set a topic setting: NAME=VALUE; repeatable")
    ] = None,
    default: Annotated[
        list[str] | None,
        typer.Option(help="return a setting to the broker's value: NAME; repeatable"),
    ] = None,
    partitions: Annotated[
        int | None, typer.Option(min=1, help="give it more partitions, so that it has this many")
    ] = None,
    bootstrap: BootstrapOption = None,
) -> None:
    """Change a topic's settings, or give it more partitions.

    The settings change together, or none does. With more partitions, the messages of a key may go
    to another partition than before.
    """
    configs, defaults = dict(map(config_pair, config or ())), default or []
    if not (configs or defaults or partitions):
        raise UsageError(
            "there is nothing to change",
            fix="give --config NAME=VALUE, --default NAME, or --partitions N",
        )
    if twice := sorted(configs.keys() & {*defaults}):
        raise UsageError(f"{twice[0]} is in --config and in --default", fix="leave one of them out")
    address = bootstrap_servers(bootstrap)
    topic_metadata(address, topic)  # raises for a topic that does not exist
    if configs or defaults:
        alter_configs(address, topic, configs, defaults)
        changes = [f"{name} is {value}" for name, value in configs.items()]
        changes += [f"{name} is the broker's" for name in defaults]
        print_status(f"altered {topic}: {', '.join(changes)}")
    if partitions:
        add_partitions(address, topic, partitions)
        print_status(f"altered {topic}: it has {partitions} partitions")


@topic_app.command()
def delete(
    topic: Name,
    yes: YesOption = False,
    bootstrap: BootstrapOption = None,
) -> None:
    """Delete a topic and all its messages."""
    address = bootstrap_servers(bootstrap)
    topic_metadata(address, topic)  # raises for a topic that does not exist
    if not yes:
        confirm(f"delete {topic} and all its messages?")
    delete_topic(address, topic)
    print_status(f"deleted {topic}")


def _damage(address: str, topic: str, brokers: list[int]) -> list[str]:
    """Return the damage in a topic as its brokers report it; nothing from foreign brokers."""
    from confluent_kafka.admin import ResourceType  # type: ignore[attr-defined]

    lines: list[str] = []
    own = re.compile(rf"{re.escape(topic)}-\d+(:| is refused:)")
    for broker in brokers:
        what = f"broker {broker} does not tell whether anything is damaged"
        configs = _configs(address, ResourceType.BROKER, str(broker), what) or {}
        known = configs.get(_DAMAGE_CONFIG)
        if known is not None and known.value:
            lines += [line for line in known.value.splitlines() if own.match(line)]
    return lines


def _own_configs(address: str, topic: str) -> dict[str, str] | None:
    """Return the settings that a topic does not take from its brokers; None if they do not tell."""
    from confluent_kafka.admin import (  # type: ignore[attr-defined]
        ConfigSource,
        ResourceType,
    )

    what = f"the settings of {topic} are not told"
    found = _configs(address, ResourceType.TOPIC, topic, what)
    if found is None:
        return None
    own = ConfigSource.DYNAMIC_TOPIC_CONFIG.value
    return {name: found[name].value for name in sorted(found) if found[name].source == own}


def _configs(address: str, kind: Any, name: str, failure: str) -> Mapping[str, Any] | None:
    """Return the configs of a broker or topic; None, with a line that says why, if it fails."""
    from confluent_kafka import KafkaException
    from confluent_kafka.admin import ConfigResource  # type: ignore[attr-defined]

    admin = admin_client(address)
    [future] = admin.describe_configs([ConfigResource(kind, name)]).values()
    try:
        found: Mapping[str, Any] = future.result(_TIMEOUT_SECONDS)
    except (KafkaException, TimeoutError) as error:
        reason = error.args[0].str() if isinstance(error, KafkaException) else "no answer"
        print_status(f"{failure}: {reason}")
        return None
    return found


def _offset_bounds(consumer: KafkaConsumer, topic: str, partition: int) -> tuple[int, int] | None:
    """Return the first and next offset of a partition, or None if its leader does not answer.

    The leader that the metadata names may have died, or may not know the topic yet.
    """
    from confluent_kafka import KafkaException, TopicPartition

    deadline = time.monotonic() + _OFFSETS_TIMEOUT_SECONDS
    while (left := deadline - time.monotonic()) > 0:
        try:
            return consumer.get_watermark_offsets(TopicPartition(topic, partition), timeout=left)
        except KafkaException as error:
            problem = error.args[0]
            if problem.name().endswith("_AUTHORIZATION_FAILED"):
                raise RefusedError(f"the broker refused to describe {topic}: {problem}") from None
            time.sleep(min(left, _RETRY_SECONDS))
    return None


def _message_counts(address: str, topics: Mapping[str, Any]) -> dict[str, int | None]:
    """Return the messages of each topic, or None if a partition's broker is away."""
    from headworks.groups import TopicPartition
    from headworks.groups._classic import ClassicGroups
    from headworks.groups._log_ends import LogOffsets

    places = {
        name: [TopicPartition(name, number) for number in topics[name].partitions]
        for name in topics
    }
    try:
        ends = LogOffsets(ClassicGroups(address)).of(
            [one for some in places.values() for one in some]
        )
    except (UnreachableError, TimeoutError):  # a leader may have died since the metadata
        ends = {}
    return {
        name: sum(ends[one].end - ends[one].start for one in some)
        if ends.keys() >= {*some}
        else None
        for name, some in places.items()
    }
