"""Questions about consumer groups that librdkafka is not to give up by itself.

Rules: the caller waits, `Future.result(seconds)`, and a late answer is dropped. If such a request
times out while its broker comes and goes, an assertion of librdkafka ends the process (issue 4605,
version 2.16). So librdkafka's own timeout is far above any wait. Changes of groups have an ordinary
timeout: a change that was given up must not take effect later.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from confluent_kafka.admin import AdminClient

_LIBRDKAFKA_SECONDS = 600.0


def describe_groups(admin: AdminClient, names: Sequence[str]) -> dict[str, Future[Any]]:
    """Ask for the state and the members of groups; return the answers by name."""
    return admin.describe_consumer_groups(list(names), request_timeout=_LIBRDKAFKA_SECONDS)


def committed_offsets(admin: AdminClient, name: str) -> Future[Any]:
    """Ask for the committed offsets of a group; return its answer.

    One group per request: every broker and protocol version supports that.
    """
    from confluent_kafka import ConsumerGroupTopicPartitions

    asked = [ConsumerGroupTopicPartitions(name)]
    return admin.list_consumer_group_offsets(asked, request_timeout=_LIBRDKAFKA_SECONDS)[name]
