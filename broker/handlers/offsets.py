"""OffsetCommit and OffsetFetch: the committed offsets of a group.

Rules: an offset belongs to one topic, and never to another one of that name. From version 10 on,
the client names the topic by its id. Before, it is the topic that has the name when a member of the
group commits. A commit without membership, as of a tool, is for any topic of that name.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Sequence
from typing import Any, NamedTuple

from headworks._broker.coordination import CommittedOffset, StoreFailureError
from headworks._broker.groups import ConsumerGroup
from headworks._broker.handlers.leadership import group_refusal
from headworks._broker.handlers.node import Node, Request
from headworks._broker.topics import HostedTopic
from headworks._kafka.error_codes import ErrorCode
from headworks._kafka.protocol.messages import Fields

_MAX_METADATA_CHARACTERS = 4096
_TOPIC_IDS = 10  # version from which topics are named by their ids
_MEMBER_EPOCHS = 9  # version from which a generation may be an epoch of the consumer protocol
_MAX_OFFSETS = 100_000  # in a reply; further groups get an error


class _NamedTopic(NamedTuple):
    """A topic of a request: its name, None if no topic has its id, and the fields that name it."""

    name: str | None
    named: dict[str, Any]
    asked: Any  # its partitions, as in the request


async def offset_commit(node: Node, request: Request) -> Fields:
    """Commit the offsets that may be committed; each partition has its own error code."""
    message = request.message
    refused_group = group_error(node, request, message.generation_id_or_member_epoch)
    refused_group = refused_group or await _others_error(node, message)
    is_member = message.generation_id_or_member_epoch >= 0
    accepted: dict[tuple[str, int], CommittedOffset] = {}
    topics: list[dict[str, Any]] = []
    for name, named, topic in _named(node, request, message.topics):
        answers = []
        refusal = _topic_error(request, name)
        served = None
        if name is not None and not refused_group and not refusal:
            served = await node.topic_lookup.find(name)
        for asked in topic.partitions:
            error = refused_group or refusal or partition_error(served, asked)
            if not error and served is not None:
                accepted[served.name, asked.partition_index] = CommittedOffset(
                    asked.committed_offset,
                    getattr(asked, "committed_leader_epoch", -1),
                    asked.committed_metadata or "",
                    named.get("topic_id", served.topic_id if is_member else None),
                )
            answers.append({"partition_index": asked.partition_index, "error_code": error})
        topics.append({**named, "partitions": answers})
    if accepted:
        try:
            group = node.groups.find(message.group_id)
            protocol_type = "" if group is None else group.protocol_type
            await node.coordination.commit_offsets(message.group_id, accepted, protocol_type)
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
        refusal = ErrorCode.INVALID_REQUEST if left <= 0 else _stale_error(node, group)
        answer = await _fetched(node, request, name, group.topics, refusal)
        left -= sum(len(topic["partitions"]) for topic in answer["topics"])
        answers.append({"group_id": name, **answer})
    return {"groups": answers}


async def _fetched(
    node: Node,
    request: Request,
    group: str,
    topics: Any,
    refusal: ErrorCode = ErrorCode.NONE,
) -> dict[str, Any]:
    error = ErrorCode.GROUP_AUTHORIZATION_FAILED
    if request.may_use_group(group):
        error = refusal or group_refusal(node, group)
    if not error:
        found = await _positions(node, request, group, topics)
        return {"error_code": ErrorCode.NONE, "topics": found}
    named = [] if topics is None else topics
    return {
        "error_code": error,  # version 1 has it at the partitions only
        "topics": [
            {
                **names,
                "partitions": [_unknown(index, error) for index in topic.partition_indexes],
            }
            for _, names, topic in _named(node, request, named)
        ],
    }


def _stale_error(node: Node, asked: Any) -> ErrorCode:
    """Return the error of a member whose epoch is not the group's: its offsets may have moved."""
    group, member_id = node.groups.find(asked.group_id), getattr(asked, "member_id", None)
    if member_id is None or not isinstance(group, ConsumerGroup):
        return ErrorCode.NONE
    return group.commit_error(member_id, asked.member_epoch)


def _named(node: Node, request: Request, topics: Iterable[Any]) -> Iterable[_NamedTopic]:
    """Yield the topics of a request, which names them by their names or their ids."""
    for topic in topics:
        if request.version < _TOPIC_IDS:
            yield _NamedTopic(topic.name, {"name": topic.name}, topic)
        else:
            found = node.hosted.by_id(topic.topic_id)
            name = None if found is None else found.name
            yield _NamedTopic(name, {"topic_id": topic.topic_id}, topic)


def _fail_accepted(topics: list[dict[str, Any]]) -> None:
    for topic in topics:
        for answer in topic["partitions"]:
            answer["error_code"] = answer["error_code"] or ErrorCode.COORDINATOR_NOT_AVAILABLE


def group_error(node: Node, request: Request, generation: int) -> ErrorCode:
    """Return why offsets of the group cannot be committed by a member of this generation."""
    message = request.message
    if not request.may_use_group(message.group_id):
        return ErrorCode.GROUP_AUTHORIZATION_FAILED
    if node.groups.too_long(message.group_id):
        return ErrorCode.INVALID_GROUP_ID
    if refusal := group_refusal(node, message.group_id):
        return refusal
    group = node.groups.find(message.group_id)
    if group is None and generation < 0:
        return ErrorCode.NONE
    if group is None:
        # members of either protocol join again after this one
        knows = request.version >= _MEMBER_EPOCHS
        return ErrorCode.UNKNOWN_MEMBER_ID if knows else ErrorCode.ILLEGAL_GENERATION
    if isinstance(group, ConsumerGroup):
        error = group.commit_error(message.member_id, generation)
        if request.version >= _MEMBER_EPOCHS or error is not ErrorCode.STALE_MEMBER_EPOCH:
            return error
        return ErrorCode.UNSUPPORTED_VERSION
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


def _topic_error(request: Request, topic: str | None) -> ErrorCode:
    if topic is None:
        return ErrorCode.UNKNOWN_TOPIC_ID
    return ErrorCode.NONE if request.may_use_topic(topic) else ErrorCode.TOPIC_AUTHORIZATION_FAILED


def partition_error(served: HostedTopic | None, asked: Any) -> ErrorCode:
    """Return why an offset of a partition cannot be committed."""
    if served is None or not 0 <= asked.partition_index < served.count:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    if len(asked.committed_metadata or "") > _MAX_METADATA_CHARACTERS:
        return ErrorCode.OFFSET_METADATA_TOO_LARGE
    return ErrorCode.NONE


async def _positions(node: Node, request: Request, group: str, topics: Any) -> list[dict[str, Any]]:
    known = await node.coordination.offsets(group)
    unstable = _unstable(node, request, group)
    if topics is None:
        return [
            {**named, "partitions": [_position(known, unstable, topic, index) for index in indexes]}
            for topic, named, indexes in _committed(node, request, known)
        ]
    found = []
    for name, named, topic in _named(node, request, topics):
        error = _topic_error(request, name)
        positions = [
            _unknown(index, error)
            if name is None or error
            else _position(known, unstable, name, index)
            for index in topic.partition_indexes
        ]
        found.append({**named, "partitions": positions})
    return found


def _committed(
    node: Node, request: Request, known: Iterable[tuple[str, int]]
) -> Iterable[tuple[str, dict[str, Any], Sequence[int]]]:
    """Yield the topics with committed offsets that the client may see, and their partitions."""
    by_topic: dict[str, list[int]] = {}
    for topic, partition in sorted(known):
        if request.client.sees_topic(request.header.key, topic):
            by_topic.setdefault(topic, []).append(partition)
    for topic, indexes in by_topic.items():
        if request.version < _TOPIC_IDS:
            yield topic, {"name": topic}, indexes
        elif (served := node.hosted.topics.get(topic)) is not None:
            yield topic, {"topic_id": served.topic_id}, indexes


def _unstable(node: Node, request: Request, group: str) -> Container[tuple[str, int]]:
    """Return the partitions whose offset a transaction may still change, if the client asks."""
    if node.transactions is None or not getattr(request.message, "require_stable", False):
        return ()
    return node.transactions.pending(group)


def _unknown(partition: int, error: ErrorCode) -> dict[str, Any]:
    return {
        "partition_index": partition,
        "committed_offset": -1,
        "committed_leader_epoch": -1,
        "metadata": "",
        "error_code": error,
    }


def _position(
    known: dict[tuple[str, int], CommittedOffset],
    unstable: Container[tuple[str, int]],
    topic: str,
    partition: int,
) -> dict[str, Any]:
    if (topic, partition) in unstable:
        return _unknown(partition, ErrorCode.UNSTABLE_OFFSET_COMMIT)
    at = known.get((topic, partition), CommittedOffset(-1))
    return {
        "partition_index": partition,
        "committed_offset": at.offset,
        "committed_leader_epoch": at.leader_epoch,
        "metadata": at.metadata,
        "error_code": ErrorCode.NONE,
    }
