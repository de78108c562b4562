"""Which brokers a command uses, and what they answer about their topics."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from headworks._cli.options import BootstrapOption, ZooKeeperOption
from headworks._kafka.client_properties import client_properties
from headworks.errors import UnreachableError

if TYPE_CHECKING:
    from confluent_kafka.admin import AdminClient

__all__ = [
    "BrokerOptions",
    "admin_client",
    "bootstrap_servers",
    "cluster_metadata",
    "topics_metadata",
]

_TIMEOUT_SECONDS = 10.0


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


def cluster_metadata(bootstrap: str) -> Any:
    """Return the metadata of all topics and brokers. Raises UnreachableError."""
    from confluent_kafka import KafkaException

    try:
        return admin_client(bootstrap).list_topics(timeout=_TIMEOUT_SECONDS)
    except KafkaException as error:
        raise UnreachableError(
            f"no broker answers at {bootstrap}: {error.args[0].str()}",
            fix="start one with `headworks up`, or give --bootstrap",
        ) from None
