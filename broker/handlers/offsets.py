"""OffsetCommit and OffsetFetch: where a group has got to."""

from __future__ import annotations

from typing import Any

from broker.coordination import Committed
from broker.handlers.node import Node, Request
from broker.protocol.errors import ErrorCode
from broker.protocol.messages import Fields

__all__ = ["offset_commit", "offset_fetch"]

_MAX_METADATA = 4096


async def offset_commit(node: Node, request: Request) -> Fields:
    """Store what may be stored; every partition has its own answer."""
    message = request.message
    group_error = _group_error(node, request)
    accepted: dict[tuple[str, int], Committed] = {}
    topics = []
    for topic in message.topics:
        answers = []
        for asked in topic.partitions:
            error = group_error or _partition_error(node, topic.name, asked)
            if not error:
                accepted[topic.name, asked.partition_index] = Committed(
                    asked.committed_offset,
                    getattr(asked, "committed_leader_epoch", -1),
                    asked.committed_metadata or "",
                )
            answers.append({"partition_index": asked.partition_index, "error_code": error})
        topics.append({"name": topic.name, "partitions": answers})
    if accepted:
        await node.coordination.commit_offsets(message.group_id, accepted)
    return {"topics": topics}


async def offset_fetch(node: Node, request: Request) -> Fields:
    """Answer for the named partitions, or for all that have a position."""
    message = request.message
    if request.version >= 8:
        return {
            "groups": [
                {
                    "group_id": group.group_id,
                    "error_code": ErrorCode.NONE,
                    "topics": await _positions(node, group.group_id, group.topics),
                }
                for group in message.groups
            ]
        }
    return {
        "error_code": ErrorCode.NONE,
        "topics": await _positions(node, message.group_id, message.topics),
    }


def _group_error(node: Node, request: Request) -> ErrorCode:
    message = request.message
    generation = message.generation_id_or_member_epoch
    group = node.groups.find(message.group_id)
    if group is None:
        return ErrorCode.NONE if generation < 0 else ErrorCode.ILLEGAL_GENERATION
    return group.commit_error(
        node.groups.clock(),
        message.member_id,
        getattr(message, "group_instance_id", None),
        generation,
    )


def _partition_error(node: Node, topic: str, asked: Any) -> ErrorCode:
    served = node.catalogue.topics.get(topic)
    if served is None or not 0 <= asked.partition_index < served.count:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    if len(asked.committed_metadata or "") > _MAX_METADATA:
        return ErrorCode.OFFSET_METADATA_TOO_LARGE
    return ErrorCode.NONE


async def _positions(node: Node, group: str, topics: Any) -> list[dict[str, Any]]:
    known = await node.coordination.offsets(group)
    if topics is None:
        wanted: dict[str, list[int]] = {}
        for topic, partition in sorted(known):
            wanted.setdefault(topic, []).append(partition)
    else:
        wanted = {topic.name: list(topic.partition_indexes) for topic in topics}
    return [
        {"name": topic, "partitions": [_position(known, topic, index) for index in indexes]}
        for topic, indexes in wanted.items()
    ]


def _position(
    known: dict[tuple[str, int], Committed], topic: str, partition: int
) -> dict[str, Any]:
    at = known.get((topic, partition), Committed(-1))
    return {
        "partition_index": partition,
        "committed_offset": at.offset,
        "committed_leader_epoch": at.leader_epoch,
        "metadata": at.metadata,
        "error_code": ErrorCode.NONE,
    }
