"""DescribeProducers, DescribeTransactions, ListTransactions, WriteTxnMarkers: for administrators.

Rules:

- A client sees the transactions of its own user. One that may administrate every topic sees all.
- Only a producer commits its transaction: WriteTxnMarkers aborts. It aborts the whole transaction,
  where Kafka aborts it in one partition.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import groupby
from typing import Any

from headworks._broker.coordination.transaction_store import ProducerTransaction, TransactionState
from headworks._broker.handlers.leadership import partition_of
from headworks._broker.handlers.node import Node, Request
from headworks._broker.handlers.transactional import error_of
from headworks._kafka.error_codes import ErrorCode
from headworks._kafka.protocol.messages import Fields
from headworks.errors import RefusedError

_NOT_STARTED = datetime.fromtimestamp(-0.001, UTC)  # -1 ms


async def describe_producers(node: Node, request: Request) -> Fields:
    """Return the producers of each partition, and where their open transactions begin."""
    return {
        "topics": [
            {
                "name": topic.name,
                "partitions": [
                    _producers(node, request, topic.name, index)
                    for index in topic.partition_indexes
                ],
            }
            for topic in request.message.topics
        ]
    }


def _producers(node: Node, request: Request, topic: str, index: int) -> dict[str, Any]:
    fields: dict[str, Any] = {"partition_index": index, "error_message": None}
    if not request.may_use_topic(topic):
        error = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        return fields | {"error_code": error, "active_producers": []}
    partition = partition_of(node, topic, index)
    if isinstance(partition, ErrorCode):
        return fields | {"error_code": partition, "active_producers": []}
    states, opened = partition.log.producers, partition.log.producers.transactions.open
    began = node.clock() - node.hosted.producers.clock()  # of the clock of the last writes
    return fields | {
        "error_code": ErrorCode.NONE,
        "active_producers": [
            {
                "producer_id": producer_id,
                "producer_epoch": state.epoch,
                "last_sequence": state.batches[-1].last_sequence if state.batches else -1,
                "last_timestamp": int((began + state.last_write) * 1000),
                "coordinator_epoch": 0 if producer_id in opened else -1,
                "current_txn_start_offset": (
                    opened[producer_id].offset if producer_id in opened else -1
                ),
            }
            for producer_id, state in states.items()
        ],
    }


async def describe_transactions(node: Node, request: Request) -> Fields:
    """Return the state of each transactional id."""
    return {
        "transaction_states": [
            _described(node, request, name) for name in request.message.transactional_ids
        ]
    }


def _described(node: Node, request: Request, name: str) -> dict[str, Any]:
    known = None if node.transactions is None else node.transactions.find(name)
    if known is None or not _visible(request, known):
        return {
            "error_code": ErrorCode.TRANSACTIONAL_ID_NOT_FOUND,
            "transactional_id": name,
            "transaction_state": "",
            "transaction_timeout": timedelta(0),
            "transaction_start_time": datetime.fromtimestamp(0, UTC),
            "producer_id": -1,
            "producer_epoch": -1,
            "topics": [],
        }
    started = known.started_ms
    return {
        "error_code": ErrorCode.NONE,
        "transactional_id": name,
        "transaction_state": known.state.value,
        "transaction_timeout": timedelta(milliseconds=known.timeout_ms),
        "transaction_start_time": (
            _NOT_STARTED if started < 0 else datetime.fromtimestamp(started / 1000, UTC)
        ),
        "producer_id": known.producer_id,
        "producer_epoch": known.epoch,
        "topics": [
            {"topic": topic, "partitions": [one.partition for one in found]}
            for topic, found in groupby(sorted(known.partitions), key=lambda one: one.topic)
        ],
    }


async def list_transactions(node: Node, request: Request) -> Fields:
    """Return the transactional ids, or those in some states, of some producers, or long ongoing."""
    message = request.message
    names = {state.value for state in TransactionState}
    states, ids = set(message.state_filters), set(message.producer_id_filters)
    longer_ms = getattr(message, "duration_filter", -1)
    now_ms = int(node.clock() * 1000)
    known = () if node.transactions is None else node.transactions.all()
    return {
        "error_code": ErrorCode.NONE,
        "unknown_state_filters": sorted(states - names),
        "transaction_states": [
            {
                "transactional_id": one.transactional_id,
                "producer_id": one.producer_id,
                "transaction_state": one.state.value,
            }
            for one in known
            if (not states or one.state.value in states)
            and (not ids or one.producer_id in ids)
            and (longer_ms < 0 or 0 <= one.started_ms < now_ms - longer_ms)
            and _visible(request, one)
        ],
    }


async def write_txn_markers(node: Node, request: Request) -> Fields:
    """Abort the transactions that producers have open in partitions."""
    return {
        "markers": [
            {
                "producer_id": marker.producer_id,
                "topics": [
                    {
                        "name": topic.name,
                        "partitions": [
                            {
                                "partition_index": index,
                                "error_code": await _aborted(
                                    node, request, marker, topic.name, index
                                ),
                            }
                            for index in topic.partition_indexes
                        ],
                    }
                    for topic in marker.topics
                ],
            }
            for marker in request.message.markers
        ]
    }


async def _aborted(node: Node, request: Request, marker: Any, topic: str, index: int) -> ErrorCode:
    if not request.may_use_broker():
        return ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    partition = partition_of(node, topic, index)
    if isinstance(partition, ErrorCode):
        return partition
    if node.transactions is None or marker.transaction_result:
        return ErrorCode.INVALID_TXN_STATE
    try:
        await node.transactions.abort_in(partition, marker.producer_id, marker.producer_epoch)
    except RefusedError as error:
        return error_of(error, fenced=False)
    return ErrorCode.NONE


def _visible(request: Request, known: ProducerTransaction) -> bool:
    client = request.client
    return known.principal == client.principal.name or client.sees_broker(request.header.key)
