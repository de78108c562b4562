"""Asking a broker about itself: what the commands on topics and messages share."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from headworks.broker_client import broker_client
from headworks.errors import UnreachableError

if TYPE_CHECKING:
    from confluent_kafka.admin import AdminClient

__all__ = ["address_of", "admin_of", "topics_of"]

_TIMEOUT = 10.0


def address_of(bootstrap: str | None) -> str:
    """The brokers that --bootstrap names, or the settings `bootstrap` and `zookeeper`."""
    from headworks.discovery import bootstrap_of

    return bootstrap_of(bootstrap)


def admin_of(bootstrap: str) -> AdminClient:
    """A client for administration of the broker at `bootstrap`."""
    from confluent_kafka.admin import AdminClient

    return AdminClient({**broker_client(bootstrap), "log_level": 2})


def topics_of(bootstrap: str) -> dict[str, Any]:
    """The metadata of every topic by name; UnreachableError if no broker answers."""
    from confluent_kafka import KafkaException

    try:
        return dict(admin_of(bootstrap).list_topics(timeout=_TIMEOUT).topics)
    except KafkaException as error:
        raise UnreachableError(
            f"no broker answers at {bootstrap}: {error.args[0].str()}",
            fix="start one with `headworks up`, or give --bootstrap",
        ) from None
