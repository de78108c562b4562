"""DescribeGroups, ListGroups, DeleteGroups, and OffsetDelete: groups for an administrator.

Rule: a broker answers for the groups that it coordinates. To list all groups, a client asks every
broker.
"""

from __future__ import annotations

from typing import Any

from headworks._broker.coordination import StoreFailureError
from headworks._broker.groups import RebalanceState
from headworks._broker.handlers.leadership import coordinates, group_refusal
from headworks._broker.handlers.node import Node, Request
from headworks._kafka.error_codes import ErrorCode
from headworks._kafka.protocol.messages import Fields

__all__ = ["delete_groups", "describe_groups", "list_groups", "offset_delete"]


async def list_groups(node: Node, request: Request) -> Fields:
    """List groups with members, and groups that only have offsets, which are empty."""
    states = {state.lower() for state in getattr(request.message, "states_filter", ())}
    listed = {
        name: {
            "group_id": name,
            "protocol_type": group.protocol_type,
            "group_state": group.state.value,
        }
        for name, group in node.groups.groups.items()
    }
    for name in await node.coordination.groups():
        if not coordinates(node, name):
            continue
        empty = {
            "group_id": name,
            "protocol_type": "",
            "group_state": RebalanceState.EMPTY.value,
        }
        listed.setdefault(name, empty)
    return {
        "error_code": ErrorCode.NONE,
        "groups": [
            fields
            for fields in listed.values()
            if (not states or fields["group_state"].lower() in states)
            and request.client.sees_group(request.header.key, fields["group_id"])
        ],
    }


async def describe_groups(node: Node, request: Request) -> Fields:
    """Return state and members of each group. An unknown group is dead."""
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
    if group is None:
        stored = await node.coordination.has_offsets(name)
        return fields | nobody | ({"group_state": RebalanceState.EMPTY.value} if stored else {})
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
        elif not await node.coordination.has_offsets(name):
            error = ErrorCode.GROUP_ID_NOT_FOUND
        else:
            error = await _forget(node, name)
        results.append({"group_id": name, "error_code": error})
    return {"results": results}


async def offset_delete(node: Node, request: Request) -> Fields:
    """Delete a group's offsets of single partitions, unless the group has members."""
    message = request.message
    error = ErrorCode.NONE
    if not request.may_use_group(message.group_id):
        error = ErrorCode.GROUP_AUTHORIZATION_FAILED
    elif refusal := group_refusal(node, message.group_id):
        error = refusal
    elif node.groups.find(message.group_id) or await node.coordination.has_members(
        message.group_id
    ):
        error = ErrorCode.NON_EMPTY_GROUP
    elif not await node.coordination.has_offsets(message.group_id):
        error = ErrorCode.GROUP_ID_NOT_FOUND
    if error:
        return {"error_code": error, "topics": []}
    refusals = {
        topic.name: ErrorCode.NONE
        if request.may_use_topic(topic.name)
        else ErrorCode.TOPIC_AUTHORIZATION_FAILED
        for topic in message.topics
    }
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


async def _forget(node: Node, group: str, keys: list[tuple[str, int]] | None = None) -> ErrorCode:
    try:
        await node.coordination.delete_offsets(group, keys)
    except StoreFailureError:
        return ErrorCode.COORDINATOR_NOT_AVAILABLE
    return ErrorCode.NONE
