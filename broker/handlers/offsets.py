"""OffsetCommit and OffsetFetch: the committed offsets of a group."""

from __future__ import annotations

from typing import Any

from headworks._broker.coordination import CommittedOffset, StoreFailureError
from headworks._broker.handlers.leadership import group_refusal
from headworks._broker.handlers.node import Node, Request
from headworks._broker.topics import HostedTopic
from headworks._kafka.error_codes import ErrorCode
from headworks._kafka.protocol.messages import Fields

__all__ = ["offset_commit", "offset_fetch"]

_MAX_METADATA_CHARACTERS = 4096
_MAX_OFFSETS = 100_000  # in a reply; further groups get an error


async def offset_commit(node: Node, request: Request) -> Fields:
    """Commit the offsets that may be committed; each partition has its own error code."""
    message = request.message
    group_error = _group_error(node, request) or await _others_error(node, message)
    accepted: dict[tuple[str, int], CommittedOffset] = {}
    topics: list[dict[str, Any]] = []
    for topic in message.topics:
        answers = []
        refusal = _topic_error(request, topic.name)
        served = None if group_error or refusal else await node.topic_lookup.find(topic.name)
        for asked in topic.partitions:
            error = group_error or refusal or _partition_error(served, asked)
            if not error:
                accepted[topic.name, asked.partition_index] = CommittedOffset(
                    asked.committed_offset,
                    getattr(asked, "committed_leader_epoch", -1),
                    asked.committed_metadata or "",
                )
            answers.append({"partition_index": asked.partition_index, "error_code": error})
        topics.append({"name": topic.name, "partitions": answers})
    if accepted:
        try:
            await node.coordination.commit_offsets(message.group_id, accepted)
        except StoreFailureError:
            _fail_accepted(topics)
    return {"topics": topics}


async def offset_fetch(node: Node, request: Request) -> Fields:
    """Answer for the named partitions, or for all with a committed offset."""
    message = request.message
    if request.version < 8:
        return await _fetched(node, request, message.group_id, message.topics)
    answers, left = [], _MAX_OFFSETS
    for name, group in {group.group_id: group for group in message.groups}.items():
        answer = await _fetched(node, request, name, group.topics, full=left <= 0)
        left -= sum(len(topic["partitions"]) for topic in answer["topics"])
        answers.append({"group_id": name, **answer})
    return {"groups": answers}


async def _fetched(
    node: Node, request: Request, group: str, topics: Any, *, full: bool = False
) -> dict[str, Any]:
    error = ErrorCode.GROUP_AUTHORIZATION_FAILED
    if request.may_use_group(group):
        error = ErrorCode.INVALID_REQUEST if full else group_refusal(node, group)
    if not error:
        found = await _positions(node, request, group, topics)
        return {"error_code": ErrorCode.NONE, "topics": found}
    named = [] if topics is None else topics
    return {
        "error_code": error,  # version 1 has it at the partitions only
        "topics": [
            {
                "name": topic.name,
                "partitions": [_unknown(index, error) for index in topic.partition_indexes],
            }
            for topic in named
        ],
    }


def _fail_accepted(topics: list[dict[str, Any]]) -> None:
    for topic in topics:
        for answer in topic["partitions"]:
            answer["error_code"] = answer["error_code"] or ErrorCode.COORDINATOR_NOT_AVAILABLE


def _group_error(node: Node, request: Request) -> ErrorCode:
    message = request.message
    if not request.may_use_group(message.group_id):
        return ErrorCode.GROUP_AUTHORIZATION_FAILED
    if node.groups.too_long(message.group_id):
        return ErrorCode.INVALID_GROUP_ID
    if refusal := group_refusal(node, message.group_id):
        return refusal
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


async def _others_error(node: Node, message: Any) -> ErrorCode:
    """Reject a commit without membership if the group has decentralized members."""
    if message.generation_id_or_member_epoch >= 0:
        return ErrorCode.NONE
    others = await node.coordination.has_members(message.group_id)
    return ErrorCode.UNKNOWN_MEMBER_ID if others else ErrorCode.NONE


def _topic_error(request: Request, topic: str) -> ErrorCode:
    return ErrorCode.NONE if request.may_use_topic(topic) else ErrorCode.TOPIC_AUTHORIZATION_FAILED


def _partition_error(served: HostedTopic | None, asked: Any) -> ErrorCode:
    if served is None or not 0 <= asked.partition_index < served.count:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    if len(asked.committed_metadata or "") > _MAX_METADATA_CHARACTERS:
        return ErrorCode.OFFSET_METADATA_TOO_LARGE
    return ErrorCode.NONE


async def _positions(node: Node, request: Request, group: str, topics: Any) -> list[dict[str, Any]]:
    known = await node.coordination.offsets(group)
    if topics is None:
        wanted: dict[str, list[int]] = {}
        for topic, partition in sorted(known):
            if request.client.sees_topic(request.header.key, topic):
                wanted.setdefault(topic, []).append(partition)
    else:
        wanted = {topic.name: list(topic.partition_indexes) for topic in topics}
    found = []
    for topic, indexes in wanted.items():
        error = _topic_error(request, topic)
        positions = [
            _unknown(index, error) if error else _position(known, topic, index) for index in indexes
        ]
        found.append({"name": topic, "partitions": positions})
    return found


def _unknown(partition: int, error: ErrorCode) -> dict[str, Any]:
    return {
        "partition_index": partition,
        "committed_offset": -1,
        "committed_leader_epoch": -1,
        "metadata": "",
        "error_code": error,
    }


def _position(
    known: dict[tuple[str, int], CommittedOffset], topic: str, partition: int
) -> dict[str, Any]:
    at = known.get((topic, partition), CommittedOffset(-1))
    return {
        "partition_index": partition,
        "committed_offset": at.offset,
        "committed_leader_epoch": at.leader_epoch,
        "metadata": at.metadata,
        "error_code": ErrorCode.NONE,
    }
