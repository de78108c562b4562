"""DescribeTopicPartitions: topics with their partitions, a page at a time.

Rules: topics come in the order of their names. A page holds as many partitions as the client asks
for, and at most `_MAX_PARTITIONS`. The cursor names the first partition of the next page. No topic
is created.
"""

from __future__ import annotations

from typing import Any

from headworks._broker.handlers.authorized_operations import topic_operations
from headworks._broker.handlers.metadata import missing_topic, topic_fields
from headworks._broker.handlers.node import Node, Request
from headworks._kafka.error_codes import ErrorCode
from headworks._kafka.protocol.messages import Fields

_MAX_PARTITIONS = 2000  # of a page, as in Apache Kafka
# Java's client fails if these are null
_NO_OTHER_REPLICAS: dict[str, Any] = {"eligible_leader_replicas": (), "last_known_elr": ()}


async def describe_topic_partitions(node: Node, request: Request) -> Fields:
    """Return a page of the named topics, or of all that the client may see."""
    message, cursor = request.message, request.message.cursor
    begin = ("", 0) if cursor is None else (cursor.topic_name, max(cursor.partition_index, 0))
    left = min(max(message.response_partition_limit, 1), _MAX_PARTITIONS)
    topics: list[dict[str, Any]] = []
    following = None
    for name in _names(node, request):
        if name < begin[0]:
            continue
        first = begin[1] if name == begin[0] else 0
        if not left:
            following = {"topic_name": name, "partition_index": first}
            break
        topic = await _describe(node, request, name)
        count = len(topic["partitions"])
        topic["partitions"] = [
            part | _NO_OTHER_REPLICAS for part in topic["partitions"][first : first + left]
        ]
        topics.append(topic)
        left -= len(topic["partitions"])
        end = first + len(topic["partitions"])
        if end < count:
            following = {"topic_name": name, "partition_index": end}
            break
    return {"topics": topics, "next_cursor": following}


def _names(node: Node, request: Request) -> list[str]:
    if request.message.topics:
        return sorted({topic.name for topic in request.message.topics})
    key = request.header.key
    return sorted(name for name in node.hosted.topics if request.client.sees_topic(key, name))


async def _describe(node: Node, request: Request, name: str) -> dict[str, Any]:
    if not request.may_use_topic(name):
        return missing_topic(name, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    topic = await node.topic_lookup.find(name)
    if topic is None:
        return missing_topic(name, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    allowed = topic_operations(request.client, name)
    return topic_fields(node, topic) | {"topic_authorized_operations": allowed}
