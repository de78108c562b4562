"""Which brokers a command uses, and what they answer about their topics."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any

from headworks._cli.options import BootstrapOption, ZooKeeperOption
from headworks._kafka.client_properties import client_properties
from headworks.errors import UnreachableError, UsageError

if TYPE_CHECKING:
    from confluent_kafka.admin import AdminClient

_TIMEOUT_SECONDS = 10.0
_STARTING_SECONDS = 2.0  # a broker that was just started may not listen yet


@dataclass(frozen=True, slots=True)
class BrokerOptions:
    """The options of a command that may find its brokers in ZooKeeper."""

    bootstrap: BootstrapOption = None
    zookeeper: ZooKeeperOption = None

    @property
    def servers(self) -> str:
        """The bootstrap servers, HOST:PORT[,..]."""
        return bootstrap_servers(self.bootstrap, self.zookeeper)


def bootstrap_servers(bootstrap: str | None, zookeeper: str | None = None) -> str:
    """Return the servers of --bootstrap, of --zookeeper, or of the settings of those names."""
    from headworks._kafka.bootstrap import resolve_bootstrap

    return resolve_bootstrap(bootstrap, zookeeper)


def admin_client(bootstrap: str) -> AdminClient:
    """Return an administration client of the brokers at `bootstrap`."""
    from confluent_kafka.admin import AdminClient

    return AdminClient({**client_properties(bootstrap), "log_level": 2})


def topics_metadata(bootstrap: str) -> dict[str, Any]:
    """Return the metadata of every topic by name. Raises UnreachableError."""
    return dict(cluster_metadata(bootstrap).topics)


def topic_metadata(bootstrap: str, topic: str) -> Any:
    """Return the metadata of a topic. Raises UnreachableError, and UsageError if there is none."""
    known = topics_metadata(bootstrap)
    if topic not in known:
        raise missing_topic_error(topic, known)
    return known[topic]


def missing_topic_error(topic: str, known: Iterable[str]) -> UsageError:
    """Return the error for a topic that does not exist; it names similar ones."""
    meant = similar_names(topic, known)
    return UsageError(f"there is no topic {topic!r}", fix=f"{meant}see `headworks topic list`")


def similar_names(name: str, known: Iterable[str]) -> str:
    """Return the question whether a similar name was meant, or nothing."""
    near = get_close_matches(name, known)
    return f"did you mean {' or '.join(map(repr, near))}? " if near else ""


def partition_offsets(bootstrap: str, topic: str, partition: int) -> tuple[int, int]:
    """Return the first offset of a partition, and the next one. Raises UnreachableError."""
    from headworks._kafka.log_offsets import EARLIEST, LATEST, list_offsets

    place = topic, partition
    admin = admin_client(bootstrap)
    found = []
    for spec in (EARLIEST, LATEST):
        listed = list_offsets(admin, [place], spec, timeout=_TIMEOUT_SECONDS)
        for error in listed.errors.values():
            raise UnreachableError(
                f"{topic} partition {partition} does not answer: {error.args[0].str()}",
                fix="see `headworks topic describe`",
            )
        found.append(listed.offsets[place])
    first, end = found
    return first, end


def cluster_metadata(
    bootstrap: str,
    *,
    properties: Mapping[str, Any] | None = None,
    option: str = "--bootstrap",
) -> Any:
    """Return the metadata of all topics and brokers. Raises UnreachableError with the reason.

    `properties` are librdkafka's, by default those of the settings. `option` names the brokers.
    """
    from confluent_kafka import KafkaError, KafkaException
    from confluent_kafka.admin import AdminClient

    from headworks._cli.no_broker import no_broker_error, nothing_listens

    errors: list[KafkaError] = []
    reported: dict[str, Any] = {"log_level": 0, "error_cb": errors.append}
    client = client_properties(bootstrap) if properties is None else properties
    admin = AdminClient({**client, **reported})
    for seconds in (_STARTING_SECONDS, _TIMEOUT_SECONDS - _STARTING_SECONDS):
        try:
            return admin.list_topics(timeout=seconds)
        except KafkaException:
            admin.poll(0)  # serves the callback
            if nothing_listens(errors):
                break
    raise no_broker_error(bootstrap, errors, option)
