"""DescribeGroups, ListGroups, DeleteGroups, and OffsetDelete: groups for an administrator.

Rule: a broker answers for the groups that it coordinates. To list all groups, a client asks every
broker.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from headworks._broker.coordination import StoreFailureError
from headworks._broker.groups import (
    ClassicGroup,
    ConsumerGroup,
    RebalanceState,
    subscribed_topics,
)
from headworks._broker.handlers.authorized_operations import group_operations
from headworks._broker.handlers.leadership import coordinates, group_refusal
from headworks._broker.handlers.node import Node, Request
from headworks._kafka.error_codes import ErrorCode
from headworks._kafka.protocol.messages import Fields

_CLASSIC, _CONSUMER = "classic", "consumer"  # the types of groups: their protocols
_NOT_FOUND_VERSION = 6  # of DescribeGroups, from which an unknown group is an error
_MAX_SHOWN_CHARACTERS = 249  # of a name that a client gives
_CONSUMERS = "consumer"  # the protocol type of groups of consumers


async def list_groups(node: Node, request: Request) -> Fields:
    """List groups with members, and groups that only have offsets, which are empty."""
    states = {state.lower() for state in getattr(request.message, "states_filter", ())}
    types = {wanted.lower() for wanted in getattr(request.message, "types_filter", ())}
    listed = {
        name: {
            "group_id": name,
            "protocol_type": group.protocol_type,
            "group_state": group.state.value,
            "group_type": _CONSUMER if isinstance(group, ConsumerGroup) else _CLASSIC,
        }
        for name, group in node.groups.groups.items()
    }
    for name, protocol_type in (await node.coordination.groups()).items():
        if not coordinates(node, name):
            continue
        empty = {
            "group_id": name,
            "protocol_type": protocol_type,
            "group_state": RebalanceState.EMPTY.value,
            "group_type": _CLASSIC,
        }
        listed.setdefault(name, empty)
    return {
        "error_code": ErrorCode.NONE,
        "groups": [
            fields
            for fields in listed.values()
            if (not types or fields["group_type"] in types)
            and (not states or fields["group_state"].lower() in states)
            and request.client.sees_group(request.header.key, fields["group_id"])
        ],
    }


async def describe_groups(node: Node, request: Request) -> Fields:
    """Return state and members of each classic group. Another one is dead, or an error from v6."""
    names = dict.fromkeys(request.message.groups)
    return {"groups": [await _describe(node, request, name) for name in names]}


async def _describe(node: Node, request: Request, name: str) -> dict[str, Any]:
    group = node.groups.find(name)
    fields: dict[str, Any] = {"error_code": ErrorCode.NONE, "group_id": name}
    nobody = {"group_state": "Dead", "protocol_type": "", "protocol_data": "", "members": []}
    if not request.may_use_group(name):
        return fields | nobody | {"error_code": ErrorCode.GROUP_AUTHORIZATION_FAILED}
    if refusal := group_refusal(node, name):
        return fields | nobody | {"error_code": refusal}
    if getattr(request.message, "include_authorized_operations", False):
        fields["authorized_operations"] = group_operations(request.client, name)
    if not isinstance(group, ClassicGroup):
        stored = None if group is not None else await node.coordination.group_type(name)
        if stored is not None:
            nobody |= {"group_state": RebalanceState.EMPTY.value, "protocol_type": stored}
        elif request.version >= _NOT_FOUND_VERSION:
            fields |= {
                "error_code": ErrorCode.GROUP_ID_NOT_FOUND,
                "error_message": f"there is no classic group {name[:_MAX_SHOWN_CHARACTERS]!r}",
            }
        return fields | nobody
    return fields | {
        "group_state": group.state.value,
        "protocol_type": group.protocol_type,
        "protocol_data": group.protocol or "",
        "members": [
            {
                "member_id": member.member_id,
                "group_instance_id": member.instance_id,
                "client_id": member.client_id,
                "client_host": member.host,
                "member_metadata": member.metadata(group.protocol),
                "member_assignment": member.assignment,
            }
            for member in group.members.values()
        ],
    }


async def delete_groups(node: Node, request: Request) -> Fields:
    """Delete groups without members, and their committed offsets."""
    results = []
    for name in request.message.groups_names:
        if not request.may_use_group(name):
            error = ErrorCode.GROUP_AUTHORIZATION_FAILED
        elif refusal := group_refusal(node, name):
            error = refusal
        elif node.groups.find(name) is not None or await node.coordination.has_members(name):
            error = ErrorCode.NON_EMPTY_GROUP
        elif await node.coordination.group_type(name) is None:
            error = ErrorCode.GROUP_ID_NOT_FOUND
        else:
            error = await _forget(node, name)
        results.append({"group_id": name, "error_code": error})
    return {"results": results}


async def offset_delete(node: Node, request: Request) -> Fields:
    """Delete a group's offsets of single partitions, unless its members subscribe to the topic."""
    message = request.message
    error = ErrorCode.NONE
    if not request.may_use_group(message.group_id):
        error = ErrorCode.GROUP_AUTHORIZATION_FAILED
    elif refusal := group_refusal(node, message.group_id):
        error = refusal
    elif await node.coordination.has_members(message.group_id):
        error = ErrorCode.NON_EMPTY_GROUP
    elif await node.coordination.group_type(message.group_id) is None:
        error = ErrorCode.GROUP_ID_NOT_FOUND
    if error:
        return {"error_code": error, "topics": []}
    group = node.groups.find(message.group_id)
    used: set[str] | None = set()
    if isinstance(group, ConsumerGroup):
        used = group.subscribed_topics()
    elif group is not None:
        used = subscribed_topics(group.members.values())
    if group is not None and (used is None or group.protocol_type != _CONSUMERS):
        return {"error_code": ErrorCode.NON_EMPTY_GROUP, "topics": []}
    refusals = {topic.name: _refusal(request, topic.name, used or ()) for topic in message.topics}
    keys = [
        (topic.name, partition.partition_index)
        for topic in message.topics
        for partition in topic.partitions
        if not refusals[topic.name]
    ]
    if error := await _forget(node, message.group_id, keys):
        return {"error_code": error, "topics": []}
    return {
        "error_code": error,
        "topics": [
            {
                "name": topic.name,
                "partitions": [
                    {"partition_index": p.partition_index, "error_code": refusals[topic.name]}
                    for p in topic.partitions
                ],
            }
            for topic in message.topics
        ],
    }


def _refusal(request: Request, topic: str, used: Collection[str]) -> ErrorCode:
    if not request.may_use_topic(topic):
        return ErrorCode.TOPIC_AUTHORIZATION_FAILED
    return ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC if topic in used else ErrorCode.NONE


async def _forget(node: Node, group: str, keys: list[tuple[str, int]] | None = None) -> ErrorCode:
    try:
        await node.coordination.delete_offsets(group, keys)
    except StoreFailureError:
        return ErrorCode.COORDINATOR_NOT_AVAILABLE
    return ErrorCode.NONE
