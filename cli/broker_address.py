"""Which brokers a command speaks to, and asking one about itself."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from headworks._kafka.client_properties import broker_client
from headworks.errors import UnreachableError

if TYPE_CHECKING:
    from confluent_kafka.admin import AdminClient

__all__ = ["ZooKeeper", "admin_client", "bootstrap_servers", "cluster_metadata", "topics_metadata"]

_TIMEOUT_SECONDS = 10.0
ZooKeeper = Annotated[
    str | None,
    typer.Option("--zookeeper", help="HOST:PORT[,..][/chroot] where the brokers are registered"),
]


def bootstrap_servers(bootstrap: str | None, zookeeper: str | None = None) -> str:
    """The brokers that --bootstrap names, or --zookeeper, or the settings of those names."""
    from headworks._kafka.bootstrap import bootstrap_of

    return bootstrap_of(bootstrap, zookeeper)


def admin_client(bootstrap: str) -> AdminClient:
    """A client for administration of the broker at `bootstrap`."""
    from confluent_kafka.admin import AdminClient

    return AdminClient({**broker_client(bootstrap), "log_level": 2})


def topics_metadata(bootstrap: str) -> dict[str, Any]:
    """The metadata of every topic by name; UnreachableError if no broker answers."""
    return dict(cluster_metadata(bootstrap).topics)


def cluster_metadata(bootstrap: str) -> Any:
    """The metadata of all topics and brokers; UnreachableError if no broker answers."""
    from confluent_kafka import KafkaException

    try:
        return admin_client(bootstrap).list_topics(timeout=_TIMEOUT_SECONDS)
    except KafkaException as error:
        raise UnreachableError(
            f"no broker answers at {bootstrap}: {error.args[0].str()}",
            fix="start one with `headworks up`, or give --bootstrap",
        ) from None
