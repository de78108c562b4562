"""ConsumerGroupHeartbeat and ConsumerGroupDescribe: groups that the broker assigns (KIP-848).

Rules: this module translates and checks; `broker.groups` decides. Only the coordinator of a group
answers for it.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable
from datetime import timedelta
from typing import Any
from uuid import UUID

from headworks._broker.groups import (
    ASSIGNORS,
    ConsumerAnswer,
    ConsumerGroup,
    ConsumerGroupMember,
    ConsumerHeartbeat,
    InvalidPatternError,
)
from headworks._broker.handlers.authorized_operations import group_operations
from headworks._broker.handlers.leadership import group_refusal
from headworks._broker.handlers.node import Node, Request
from headworks._broker.handlers.visible_topics import VisibleTopics
from headworks._kafka.error_codes import ErrorCode, refused
from headworks._kafka.protocol.apis import ApiKey
from headworks._kafka.protocol.messages import Fields
from headworks.errors import RefusedError

_OWN_ID_VERSION = 1  # from which a member brings its own id
_LEAST_EPOCH = -2
_MAX_SHOWN_CHARACTERS = 249  # of a name that a client gives
_CLASSIC, _CONSUMER = 0, 1  # the member types of ConsumerGroupDescribe


async def consumer_group_heartbeat(node: Node, request: Request) -> Fields:
    """Join, stay in, or leave a group; the answer says what the member may read."""
    message = request.message
    try:
        if not request.may_use_group(message.group_id):
            raise refused(ErrorCode.GROUP_AUTHORIZATION_FAILED, "may not be in this group")
        if refusal := group_refusal(node, message.group_id):
            raise refused(refusal, "another broker coordinates this group")
        beat = _heartbeat(node, request)
        topics = VisibleTopics(node, request)
        answer = node.groups.consumer_heartbeat(message.group_id, beat, topics)
    except InvalidPatternError as error:
        text = f"the regular expression of the subscription is not taken: {error}"
        answer = ConsumerAnswer(ErrorCode.INVALID_REGULAR_EXPRESSION, text, message.member_id)
    except RefusedError as error:
        answer = ConsumerAnswer(ErrorCode(error.code), str(error), message.member_id)
    assigned = answer.assigned
    return {
        "error_code": answer.error,
        "error_message": answer.message,
        "member_id": answer.member_id,
        "member_epoch": answer.epoch,
        "heartbeat_interval": timedelta(seconds=answer.interval),
        "assignment": None if assigned is None else {"topic_partitions": _by_topic(assigned)},
    }


def _heartbeat(node: Node, request: Request) -> ConsumerHeartbeat:
    """Read and check a request. Raises RefusedError."""
    message = request.message
    _check(node, request)
    names, owned = message.subscribed_topic_names, message.topic_partitions
    for name in names or ():
        if not request.may_use_topic(name):
            raise refused(
                ErrorCode.TOPIC_AUTHORIZATION_FAILED,
                f"may not read the topic {name[:_MAX_SHOWN_CHARACTERS]!r}",
            )
    timeout = message.rebalance_timeout.total_seconds()
    return ConsumerHeartbeat(
        message.member_id or str(uuid.uuid4()),
        message.member_epoch,
        request.header.client_id or "",
        request.client.peer,
        message.instance_id,
        message.rack_id,
        timeout if timeout >= 0 else None,
        None if names is None else frozenset(names),
        getattr(message, "subscribed_topic_regex", None),
        message.server_assignor,
        None
        if owned is None
        else frozenset((one.topic_id, index) for one in owned for index in one.partitions),
    )


def _check(node: Node, request: Request) -> None:
    """Check a request as Kafka does. Raises RefusedError."""
    message = request.message
    if not message.group_id or node.groups.too_long(message.group_id):
        raise refused(ErrorCode.INVALID_REQUEST, "the group id is empty, or too long")
    if "" in (message.instance_id, message.rack_id):
        raise refused(ErrorCode.INVALID_REQUEST, "the instance id and the rack cannot be empty")
    joins = message.member_epoch == 0
    if not message.member_id and (not joins or request.version >= _OWN_ID_VERSION):
        raise refused(ErrorCode.INVALID_REQUEST, "the member id cannot be empty")
    if message.member_epoch < _LEAST_EPOCH:
        raise refused(ErrorCode.INVALID_REQUEST, f"{message.member_epoch} is no member epoch")
    if message.member_epoch == _LEAST_EPOCH and message.instance_id is None:
        raise refused(ErrorCode.INVALID_REQUEST, "only a static member leaves for a while")
    regex = getattr(message, "subscribed_topic_regex", None)
    if joins and message.subscribed_topic_names is None and regex is None:
        raise refused(ErrorCode.INVALID_REQUEST, "a member that joins needs a subscription")
    if joins and message.rebalance_timeout < timedelta(0):
        raise refused(ErrorCode.INVALID_REQUEST, "a member that joins needs a rebalance timeout")
    if joins and message.topic_partitions:
        raise refused(ErrorCode.INVALID_REQUEST, "a member that joins owns no partitions")
    if message.server_assignor and message.server_assignor not in ASSIGNORS:
        raise refused(
            ErrorCode.UNSUPPORTED_ASSIGNOR,
            f"there is no assignor {message.server_assignor[:_MAX_SHOWN_CHARACTERS]!r}; there are"
            f" {', '.join(ASSIGNORS)}",
        )


async def consumer_group_describe(node: Node, request: Request) -> Fields:
    """Describe groups of the consumer protocol. A classic or empty group is not found."""
    names = dict.fromkeys(request.message.group_ids)
    return {"groups": [_describe(node, request, name) for name in names]}


def _describe(node: Node, request: Request, name: str) -> dict[str, Any]:
    fields: dict[str, Any] = {
        "error_code": ErrorCode.NONE,
        "group_id": name,
        "group_state": "Dead",
        "group_epoch": 0,
        "assignment_epoch": 0,
        "assignor_name": "",
        "members": [],
    }
    if not request.may_use_group(name):
        return fields | {"error_code": ErrorCode.GROUP_AUTHORIZATION_FAILED}
    if refusal := group_refusal(node, name):
        return fields | {"error_code": refusal}
    group = node.groups.find(name)
    if not isinstance(group, ConsumerGroup):
        shown = name[:_MAX_SHOWN_CHARACTERS]
        return fields | {
            "error_code": ErrorCode.GROUP_ID_NOT_FOUND,
            "error_message": f"{shown!r} is no group of the consumer protocol with members",
        }
    if request.message.include_authorized_operations:
        fields["authorized_operations"] = group_operations(request.client, name)
    return fields | {
        "group_state": group.state.value,
        "group_epoch": group.epoch,
        "assignment_epoch": group.target_epoch,
        "assignor_name": group.assignor,
        "members": [_member(node, request, group, one) for one in group.members.values()],
    }


def _member(
    node: Node, request: Request, group: ConsumerGroup, member: ConsumerGroupMember
) -> dict[str, Any]:
    target = group.target.get(member.member_id, frozenset())
    return {
        "member_id": member.member_id,
        "instance_id": member.instance_id,
        "rack_id": member.rack_id,
        "member_epoch": member.epoch,
        "client_id": member.client_id,
        "client_host": member.host,
        "subscribed_topic_names": sorted(member.topic_names),
        "subscribed_topic_regex": member.regex,
        "assignment": {"topic_partitions": _with_names(node, request, member.assigned)},
        "target_assignment": {"topic_partitions": _with_names(node, request, target)},
        "member_type": _CONSUMER if member.classic is None else _CLASSIC,
    }


def _by_topic(partitions: Iterable[tuple[UUID, int]]) -> list[dict[str, Any]]:
    topics: dict[UUID, list[int]] = {}
    for topic, index in sorted(partitions):
        topics.setdefault(topic, []).append(index)
    return [{"topic_id": topic, "partitions": indexes} for topic, indexes in topics.items()]


def _with_names(
    node: Node, request: Request, partitions: Iterable[tuple[UUID, int]]
) -> list[dict[str, Any]]:
    """Return the partitions of topics that exist and that the client may see."""
    found = []
    for fields in _by_topic(partitions):
        topic = node.hosted.by_id(fields["topic_id"])
        if topic is not None and request.client.sees_topic(ApiKey.FETCH, topic.name):
            found.append(fields | {"topic_name": topic.name})
    return found
