"""JoinGroup, SyncGroup, Heartbeat, LeaveGroup, and FindCoordinator: membership in a group.

Rules: this module translates; `broker.groups` decides what a group does. Only the coordinator of a
group answers for it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import timedelta
from typing import Any, TypeVar

from headworks._broker.groups import JoinRequest, JoinResponse, SyncResponse
from headworks._broker.handlers.leadership import coordinator, group_refusal
from headworks._broker.handlers.metadata import broker_fields
from headworks._broker.handlers.node import Node, Request
from headworks._broker.handlers.visible_topics import VisibleTopics
from headworks._kafka.error_codes import ErrorCode
from headworks._kafka.protocol.messages import Fields

_GROUP, _TRANSACTION = 0, 1
_BATCHED_VERSION = 4  # from which a request names several groups
_NO_TRANSACTIONS = "a broker of a cluster has no transactions: remove transactional.id"
_T = TypeVar("_T")


async def find_coordinator(node: Node, request: Request) -> Fields:
    """Return the living broker that coordinates a group, or a transactional id."""
    message = request.message
    kind = getattr(message, "key_type", _GROUP)
    if request.version < _BATCHED_VERSION:
        return _coordinator(node, request, kind, message.key)
    return {
        "coordinators": [
            _coordinator(node, request, kind, key) | {"key": key}
            for key in message.coordinator_keys
        ]
    }


def _coordinator(node: Node, request: Request, kind: int, key: str) -> dict[str, Any]:
    error, text = ErrorCode.NONE, None
    if kind != _GROUP:
        error, text = ErrorCode.UNSUPPORTED_VERSION, _NO_TRANSACTIONS
        if kind == _TRANSACTION and node.transactions is not None:
            error, text = ErrorCode.NONE, None
        elif kind == _TRANSACTION:
            request.client.wants_transactions(request.header.key, request.header.client_id)
            if request.version < _BATCHED_VERSION:
                # librdkafka retries every other error until its timeout, and shows no reason then
                error = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    elif not request.may_use_group(key):
        error, text = ErrorCode.GROUP_AUTHORIZATION_FAILED, "may not be in this group"
    found = None if error else coordinator(node, key)
    if found is not None:
        return {"error_code": error, "error_message": text} | broker_fields(found)
    if not error:
        error, text = ErrorCode.COORDINATOR_NOT_AVAILABLE, "no broker can coordinate it now"
    nowhere = {"node_id": -1, "host": "", "port": -1}
    return {"error_code": error, "error_message": text} | nowhere


async def join_group(node: Node, request: Request) -> Fields:
    """Answer when all members have joined."""
    message = request.message
    if not request.may_use_group(message.group_id):
        return _joined(
            request, JoinResponse(ErrorCode.GROUP_AUTHORIZATION_FAILED, message.member_id)
        )
    if refusal := group_refusal(node, message.group_id):
        return _joined(request, JoinResponse(refusal, message.member_id))
    session = _seconds(message.session_timeout)
    join = JoinRequest(
        member_id=message.member_id,
        instance_id=getattr(message, "group_instance_id", None),
        client_id=request.header.client_id or "",
        host=request.client.peer,
        session_timeout=session,
        # version 0 has no rebalance timeout: the session's serves, or nobody would be waited for
        rebalance_timeout=_seconds(getattr(message, "rebalance_timeout", None), session),
        protocol_type=message.protocol_type,
        protocols=tuple((p.name, bytes(p.metadata)) for p in message.protocols),
        needs_id=request.version >= 4,
        may_skip_assignment=request.version >= 9,
    )
    done: asyncio.Future[JoinResponse] = asyncio.get_running_loop().create_future()
    node.groups.join(message.group_id, join, _settle(done), VisibleTopics(node, request))
    return _joined(request, await done)


def _joined(request: Request, joined: JoinResponse) -> dict[str, Any]:
    return {
        "error_code": joined.error,
        "generation_id": joined.generation,
        "protocol_type": joined.protocol_type,
        # before version 7 the name cannot be null
        "protocol_name": joined.protocol if request.version >= 7 else joined.protocol or "",
        "leader": joined.leader,
        "skip_assignment": joined.skip_assignment,
        "member_id": joined.member_id,
        "members": [
            {"member_id": member_id, "group_instance_id": instance_id, "metadata": metadata}
            for member_id, instance_id, metadata in joined.members
        ],
    }


async def sync_group(node: Node, request: Request) -> Fields:
    """Answer when the leader has sent the assignment."""
    message = request.message
    if not request.may_use_group(message.group_id):
        return {"error_code": ErrorCode.GROUP_AUTHORIZATION_FAILED, "assignment": b""}
    if refusal := group_refusal(node, message.group_id):
        return {"error_code": refusal, "assignment": b""}
    done: asyncio.Future[SyncResponse] = asyncio.get_running_loop().create_future()
    node.groups.sync(
        message.group_id,
        message.member_id,
        getattr(message, "group_instance_id", None),
        message.generation_id,
        {a.member_id: bytes(a.assignment) for a in message.assignments},
        _settle(done),
        VisibleTopics(node, request),
        protocol_type=getattr(message, "protocol_type", None),
        protocol=getattr(message, "protocol_name", None),
    )
    synced = await done
    return {
        "error_code": synced.error,
        "protocol_type": synced.protocol_type,
        "protocol_name": synced.protocol,
        "assignment": synced.assignment,
    }


async def heartbeat(node: Node, request: Request) -> Fields:
    """Keep the member alive; the error code says whether it must rejoin."""
    message = request.message
    if not request.may_use_group(message.group_id):
        return {"error_code": ErrorCode.GROUP_AUTHORIZATION_FAILED}
    if refusal := group_refusal(node, message.group_id):
        return {"error_code": refusal}
    error = node.groups.heartbeat(
        message.group_id,
        message.member_id,
        getattr(message, "group_instance_id", None),
        message.generation_id,
    )
    return {"error_code": error}


async def leave_group(node: Node, request: Request) -> Fields:
    """Remove one member, or from version 3 on several."""
    message = request.message
    if not request.may_use_group(message.group_id):
        return {"error_code": ErrorCode.GROUP_AUTHORIZATION_FAILED, "members": []}
    if refusal := group_refusal(node, message.group_id):
        return {"error_code": refusal, "members": []}
    if request.version < 3:
        [error] = node.groups.leave(message.group_id, [(message.member_id, None)])
        return {"error_code": error}
    leaving = [(member.member_id, member.group_instance_id) for member in message.members]
    errors = node.groups.leave(message.group_id, leaving)
    return {
        "error_code": ErrorCode.NONE,
        "members": [
            {"member_id": member_id, "group_instance_id": instance_id, "error_code": error}
            for (member_id, instance_id), error in zip(leaving, errors, strict=True)
        ],
    }


def _settle(future: asyncio.Future[_T]) -> Callable[[_T], None]:
    """Return a callback that completes `future`, unless the connection is closed."""

    def settle(result: _T) -> None:
        if not future.done():
            future.set_result(result)

    return settle


def _seconds(value: timedelta | None, otherwise: float = 0.0) -> float:
    return otherwise if value is None else value.total_seconds()
