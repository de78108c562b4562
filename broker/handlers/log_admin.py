"""DeleteRecords, OffsetForLeaderEpoch, DescribeLogDirs, and DescribeCluster."""

from __future__ import annotations

import asyncio
import os
from typing import Any

from headworks._broker.handlers.authorized_operations import cluster_operations
from headworks._broker.handlers.leadership import expose_soon, partition_of
from headworks._broker.handlers.metadata import broker_fields, controller_of, living
from headworks._broker.handlers.node import Node, Request
from headworks._broker.log import OffsetOutOfRangeError
from headworks._broker.log.partition import LEADER_EPOCH
from headworks._broker.topics import HostedPartition, StorageFailureError
from headworks._kafka.error_codes import ErrorCode
from headworks._kafka.protocol.messages import Fields

_HIGH_WATERMARK = -1
_BROKERS = 1


async def delete_records(node: Node, request: Request) -> Fields:
    """Advance the log start offset of partitions, and delete whole segments before it.

    Every record that was acknowledged before the request can be deleted: it waits for their flush.
    """
    expose_soon(
        node,
        request,
        (
            (topic.name, asked.partition_index)
            for topic in request.message.topics
            for asked in topic.partitions
        ),
    )
    topics = []
    for topic in request.message.topics:
        answers = []
        for asked in topic.partitions:
            answers.append(await _delete(node, request, topic.name, asked))
            await asyncio.sleep(0)  # each may have waited for the disk: let other clients be served
        topics.append({"name": topic.name, "partitions": answers})
    return {"topics": topics}


async def _delete(node: Node, request: Request, topic: str, asked: Any) -> dict[str, Any]:
    fields = {"partition_index": asked.partition_index, "low_watermark": -1}
    if not request.may_use_topic(topic):
        return fields | {"error_code": ErrorCode.TOPIC_AUTHORIZATION_FAILED}
    partition = partition_of(node, topic, asked.partition_index)
    if isinstance(partition, ErrorCode):
        return fields | {"error_code": partition}
    if partition.internal:
        return fields | {"error_code": ErrorCode.INVALID_TOPIC_EXCEPTION}
    log = partition.log
    try:
        await partition.wait_until_exposed()
        offset = log.high_watermark if asked.offset == _HIGH_WATERMARK else asked.offset
        for segment in log.delete_before(offset):
            segment.remove_files()
    except OffsetOutOfRangeError:
        return fields | {"error_code": ErrorCode.OFFSET_OUT_OF_RANGE}
    except (OSError, StorageFailureError):
        return fields | {"error_code": partition.failure_code}
    return fields | {"error_code": ErrorCode.NONE, "low_watermark": log.log_start_offset}


async def offset_for_leader_epoch(node: Node, request: Request) -> Fields:
    """Answer with the log end offset, as Apache Kafka does: there is one leader epoch."""
    return {
        "topics": [
            {
                "topic": topic.topic,
                "partitions": [
                    _epoch_end(node, request, topic.topic, asked) for asked in topic.partitions
                ],
            }
            for topic in request.message.topics
        ]
    }


def _epoch_end(node: Node, request: Request, topic: str, asked: Any) -> dict[str, Any]:
    fields: dict[str, Any] = {"partition": asked.partition}
    if not request.may_use_topic(topic):
        return fields | {"error_code": ErrorCode.TOPIC_AUTHORIZATION_FAILED}
    partition = partition_of(node, topic, asked.partition)
    if isinstance(partition, ErrorCode):
        return fields | {"error_code": partition}
    if asked.current_leader_epoch > LEADER_EPOCH:
        return fields | {"error_code": ErrorCode.UNKNOWN_LEADER_EPOCH}
    if asked.leader_epoch != LEADER_EPOCH:
        return fields | {"error_code": ErrorCode.NONE, "leader_epoch": -1, "end_offset": -1}
    return fields | {
        "error_code": ErrorCode.NONE,
        "leader_epoch": LEADER_EPOCH,
        "end_offset": partition.log.log_end_offset,
    }


async def describe_cluster(node: Node, request: Request) -> Fields:
    """Return the living brokers."""
    if getattr(request.message, "endpoint_type", _BROKERS) != _BROKERS:
        return {
            "error_code": ErrorCode.INVALID_REQUEST,
            "error_message": "there are no controllers to describe",
            "cluster_id": node.coordination.cluster_id,
            "brokers": [],
        }
    return {
        "error_code": ErrorCode.NONE,
        "error_message": None,
        "cluster_id": node.coordination.cluster_id,
        "controller_id": controller_of(node),
        **(
            {"cluster_authorized_operations": cluster_operations(request.client)}
            if request.message.include_cluster_authorized_operations
            else {}
        ),
        "brokers": [
            {"broker_id": broker, "rack": None} | fields
            for broker, fields in (
                (fields.pop("node_id"), fields) for fields in map(broker_fields, living(node))
            )
        ],
    }


async def describe_log_dirs(node: Node, request: Request) -> Fields:
    """Return the sizes of the requested partitions and of the disk. There is one log folder."""
    if not request.may_use_broker():
        return {"error_code": ErrorCode.CLUSTER_AUTHORIZATION_FAILED, "results": []}
    asked = request.message.topics
    wanted = None if asked is None else {t.topic: set(t.partitions) for t in asked}
    topics: dict[str, list[HostedPartition]] = {}
    for partition in node.hosted.partitions():
        if wanted is None or partition.index in wanted.get(partition.topic, ()):
            topics.setdefault(partition.topic, []).append(partition)
    disk = os.statvfs(node.hosted.folder)
    return {
        "error_code": ErrorCode.NONE,
        "results": [
            {
                "error_code": ErrorCode.NONE,
                "log_dir": str(node.hosted.folder),
                "topics": [
                    {
                        "name": topic,
                        "partitions": [
                            {
                                "partition_index": partition.index,
                                "partition_size": partition.log.size,
                                "offset_lag": 0,
                                "is_future_key": False,
                            }
                            for partition in partitions
                        ],
                    }
                    for topic, partitions in topics.items()
                ],
                "total_bytes": disk.f_blocks * disk.f_frsize,
                "usable_bytes": disk.f_bavail * disk.f_frsize,
            }
        ],
    }
