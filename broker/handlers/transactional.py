"""AddPartitionsToTxn, AddOffsetsToTxn, EndTxn, and TxnOffsetCommit: the requests of a transaction.

Rules: this module translates; `broker.transactions` decides and stores. A broker of a cluster has
no transactions, and answers with UNSUPPORTED_VERSION. Versions from before PRODUCER_FENCED get
INVALID_PRODUCER_EPOCH instead.
"""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Any

from headworks._broker.coordination import CommittedOffset, StoreFailureError
from headworks._broker.coordination.transaction_store import PendingOffset, TransactionPartition
from headworks._broker.handlers.leadership import group_refusal
from headworks._broker.handlers.node import Node, Request
from headworks._broker.handlers.offsets import group_error, partition_error
from headworks._broker.transactions import Asker, TransactionCoordinator
from headworks._kafka.error_codes import ErrorCode
from headworks._kafka.protocol.messages import Fields
from headworks.errors import RefusedError

_FENCED_FROM = 2  # the version of these requests that knows PRODUCER_FENCED


async def add_partitions_to_txn(node: Node, request: Request) -> Fields:
    """Add partitions to a transaction: all that the request names, or none."""
    message = request.message
    asker = _asker(
        request,
        message.v3_and_below_transactional_id,
        message.v3_and_below_producer_id,
        message.v3_and_below_producer_epoch,
    )
    named = [(t.name, index) for t in message.v3_and_below_topics for index in t.partitions]
    errors = {place: _place_error(node, request, *place) for place in named}
    if any(errors.values()):
        errors = {at: code or ErrorCode.OPERATION_NOT_ATTEMPTED for at, code in errors.items()}
    else:
        added = [
            TransactionPartition(topic, index, node.hosted.topics[topic].topic_id)
            for topic, index in named
        ]
        code = await _error(
            request, node, lambda transactions: transactions.add_partitions(asker, added)
        )
        errors = dict.fromkeys(errors, code)
    return {
        "results_by_topic_v3_and_below": [
            {
                "name": topic.name,
                "results_by_partition": [
                    {"partition_index": index, "partition_error_code": errors[topic.name, index]}
                    for index in topic.partitions
                ],
            }
            for topic in message.v3_and_below_topics
        ]
    }


async def add_offsets_to_txn(node: Node, request: Request) -> Fields:
    """Let a transaction commit offsets of a group."""
    message = request.message
    if not request.may_use_group(message.group_id):
        return {"error_code": ErrorCode.GROUP_AUTHORIZATION_FAILED}
    if node.groups.too_long(message.group_id):
        return {"error_code": ErrorCode.INVALID_GROUP_ID}
    asker = _asker_of(request)
    error = await _error(
        request, node, lambda transactions: transactions.add_group(asker, message.group_id)
    )
    return {"error_code": error}


async def end_txn(node: Node, request: Request) -> Fields:
    """Commit or abort a transaction."""
    if not request.may_use_broker():
        return {"error_code": ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED}
    asker, commit = _asker_of(request), request.message.committed
    return {
        "error_code": await _error(
            request, node, lambda transactions: transactions.end(asker, commit=commit)
        )
    }


async def txn_offset_commit(node: Node, request: Request) -> Fields:
    """Take offsets that are committed when their transaction is."""
    message = request.message
    refusal = _group_error(node, request)
    asker = _asker_of(request)
    group = node.groups.find(message.group_id)
    protocol_type = "" if group is None else group.protocol_type
    accepted: list[PendingOffset] = []
    errors: dict[tuple[str, int], ErrorCode] = {}
    for topic in message.topics:
        allowed = request.may_use_topic(topic.name)
        served = await node.topic_lookup.find(topic.name) if allowed and not refusal else None
        for asked in topic.partitions:
            place = topic.name, asked.partition_index
            errors[place] = refusal
            if not refusal and not allowed:
                errors[place] = ErrorCode.TOPIC_AUTHORIZATION_FAILED
            elif not refusal:
                errors[place] = partition_error(served, asked)
            if not errors[place] and served is not None:
                committed = CommittedOffset(
                    asked.committed_offset,
                    getattr(asked, "committed_leader_epoch", -1),
                    asked.committed_metadata or "",
                    served.topic_id,
                )
                accepted.append(PendingOffset(message.group_id, *place, committed, protocol_type))
    if accepted:
        code = await _error(
            request, node, lambda transactions: transactions.commit_offsets(asker, accepted)
        )
        if code is ErrorCode.PRODUCER_FENCED:
            code = ErrorCode.INVALID_PRODUCER_EPOCH
        errors = {place: error or code for place, error in errors.items()}
    return {
        "topics": [
            {
                "name": topic.name,
                "partitions": [
                    {
                        "partition_index": asked.partition_index,
                        "error_code": errors[topic.name, asked.partition_index],
                    }
                    for asked in topic.partitions
                ],
            }
            for topic in message.topics
        ]
    }


def _group_error(node: Node, request: Request) -> ErrorCode:
    """Return why offsets of the group cannot be committed; old versions name no member."""
    message = request.message
    if hasattr(message, "generation_id"):
        error = group_error(node, request, message.generation_id)
        # a member of either protocol that is behind aborts, and continues after its rebalance
        return ErrorCode.ILLEGAL_GENERATION if error is ErrorCode.UNSUPPORTED_VERSION else error
    if not request.may_use_group(message.group_id):
        return ErrorCode.GROUP_AUTHORIZATION_FAILED
    return group_refusal(node, message.group_id)


def _place_error(node: Node, request: Request, topic: str, index: int) -> ErrorCode:
    if not request.may_use_topic(topic):
        return ErrorCode.TOPIC_AUTHORIZATION_FAILED
    served = node.hosted.topics.get(topic)
    if served is None or not 0 <= index < served.count:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return ErrorCode.NONE


def _asker_of(request: Request) -> Asker:
    message = request.message
    return _asker(request, message.transactional_id, message.producer_id, message.producer_epoch)


def _asker(request: Request, transactional_id: str, producer_id: int, epoch: int) -> Asker:
    return Asker(transactional_id, request.client.principal.name, producer_id, epoch)


async def _error(request: Request, node: Node, act: Any) -> ErrorCode:
    """Run an act of the coordinator, and return its error code."""
    transactions: TransactionCoordinator | None = node.transactions
    if transactions is None:
        request.client.wants_transactions(request.header.key, request.header.client_id)
        return ErrorCode.UNSUPPORTED_VERSION
    try:
        acting: Awaitable[None] = act(transactions)
        await acting
    except RefusedError as error:
        return error_of(error, fenced=request.version >= _FENCED_FROM)
    return ErrorCode.NONE


def error_of(error: RefusedError, *, fenced: bool) -> ErrorCode:
    """Return the code for an error of the coordinator; `fenced`: the client knows that one."""
    if isinstance(error, StoreFailureError):  # every client retries this code
        return ErrorCode.COORDINATOR_NOT_AVAILABLE
    code = ErrorCode(error.code)
    if code is ErrorCode.PRODUCER_FENCED and not fenced:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    return code
