"""Which broker answers for a partition or a group.

Rules: finding a hosted partition is one dictionary lookup. A broker without a valid lease answers
for nothing. The client then asks another broker, or this one again when its lease is valid.
"""

from __future__ import annotations

from collections.abc import Iterable

from headworks._broker.coordination import ClusterMember
from headworks._broker.coordination.assignment import coordinator_of
from headworks._broker.handlers.node import Node, Request
from headworks._broker.topics import HostedPartition
from headworks._kafka.error_codes import ErrorCode, refused
from headworks.errors import RefusedError


def partition_of(node: Node, topic: str, index: int) -> HostedPartition | ErrorCode:
    """Return the partition if this broker answers for it, and otherwise the error code."""
    partition = node.hosted.partition(topic, index)
    if partition is None or not node.coordination.lease_valid:
        return unavailable_error(node, topic, index)
    return partition


def unavailable_error(node: Node, topic: str, index: int) -> ErrorCode:
    """Return the error code for a partition that this broker does not answer for."""
    served = node.hosted.topics.get(topic)
    if served is None or not 0 <= index < served.count:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    if index in served.refused:
        return ErrorCode.KAFKA_STORAGE_ERROR
    return ErrorCode.NOT_LEADER_OR_FOLLOWER


def internal_topic(topic: str) -> RefusedError:
    """Return the error for a change of a topic that only the broker changes."""
    why = f"{topic} is a copy of what the broker keeps elsewhere: it can only be read"
    return refused(ErrorCode.INVALID_TOPIC_EXCEPTION, why)


def check_changeable(node: Node, topic: str) -> None:
    """Raise RefusedError for a topic that only the broker changes."""
    served = node.hosted.topics.get(topic)
    if served is not None and served.internal:
        raise internal_topic(topic)


def expose_soon(node: Node, request: Request, partitions: Iterable[tuple[str, int]]) -> None:
    """Start the flushes that a request waits for, so that it waits for all at once.

    A request that asks where a log ends waits for them: its answer covers each acknowledged record.
    """
    for topic, index in partitions:
        partition = node.hosted.partition(topic, index)
        if partition is not None and request.client.sees_topic(request.header.key, topic):
            partition.expose_soon()


def leader_of(node: Node, broker: int, *, served: bool) -> int:
    """Return the leader of a partition of `broker`, or -1. `served`: we host it, if it is ours."""
    if broker == node.node_id:
        return broker if served and node.coordination.lease_valid else -1
    return broker if broker in node.coordination.members else -1


def coordinator(node: Node, group: str) -> ClusterMember | None:
    """Return the living broker that coordinates a group."""
    members = node.coordination.members
    broker = coordinator_of(group, members)
    if broker is None or (broker == node.node_id and not node.coordination.lease_valid):
        return None
    return members[broker]


def coordinates(node: Node, group: str) -> bool:
    """Return whether this broker coordinates a group."""
    found = coordinator(node, group)
    return found is not None and found.broker == node.node_id


def group_refusal(node: Node, group: str) -> ErrorCode:
    """Return NOT_COORDINATOR unless this broker coordinates the group."""
    return ErrorCode.NONE if coordinates(node, group) else ErrorCode.NOT_COORDINATOR
