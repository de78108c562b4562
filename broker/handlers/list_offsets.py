"""ListOffsets: the ends of a partition, or the first offset at or after a timestamp.

Rules:

- The search by timestamp reads batches, which may be large and compressed. It runs in a thread, one
  search at a time, so that no other client waits for it.
- A negative number names an end of the log and is never a timestamp. Those of tiered storage belong
  to versions that are not served, and get the error that Apache Kafka gives.
"""

from __future__ import annotations

import asyncio
from typing import Any

from headworks._broker.handlers.leadership import partition_of
from headworks._broker.handlers.node import Node, Request
from headworks._broker.log.partition import LEADER_EPOCH
from headworks._broker.topics import HostedPartition
from headworks._kafka.error_codes import ErrorCode
from headworks._kafka.protocol.messages import Fields
from headworks.errors import CorruptError

__all__ = ["list_offsets"]

_LATEST, _EARLIEST, _MAX_TIMESTAMP = -1, -2, -3
_PLACES = frozenset({_LATEST, _EARLIEST, _MAX_TIMESTAMP})


async def list_offsets(node: Node, request: Request) -> Fields:
    """Answer for each partition on its own."""
    return {
        "topics": [
            {
                "name": topic.name,
                "partitions": [
                    await _answer(node, request, topic.name, asked) for asked in topic.partitions
                ],
            }
            for topic in request.message.topics
        ]
    }


async def _answer(node: Node, request: Request, topic: str, asked: Any) -> dict[str, Any]:
    fields: dict[str, Any] = {"partition_index": asked.partition_index}
    if not request.may_use_topic(topic):
        return fields | {"error_code": ErrorCode.TOPIC_AUTHORIZATION_FAILED}
    partition = partition_of(node, topic, asked.partition_index)
    if isinstance(partition, ErrorCode):
        return fields | {"error_code": partition}
    if getattr(asked, "current_leader_epoch", -1) > LEADER_EPOCH:
        return fields | {"error_code": ErrorCode.UNKNOWN_LEADER_EPOCH}
    if asked.timestamp < 0 and asked.timestamp not in _PLACES:
        return fields | {"error_code": ErrorCode.UNSUPPORTED_VERSION}
    try:
        found = await _find(node, partition, asked.timestamp)
    except CorruptError as error:
        partition.log_damage(error)
        return fields | {"error_code": ErrorCode.CORRUPT_MESSAGE}
    except OSError:
        return fields | {"error_code": ErrorCode.KAFKA_STORAGE_ERROR}
    fields["error_code"] = ErrorCode.NONE
    if found is None:
        return fields | {"offset": -1, "timestamp": -1, "leader_epoch": -1}
    return fields | {"offset": found[0], "timestamp": found[1], "leader_epoch": LEADER_EPOCH}


async def _find(node: Node, partition: HostedPartition, timestamp: int) -> tuple[int, int] | None:
    log = partition.log
    if timestamp == _LATEST:
        return log.high_watermark, -1
    if timestamp == _EARLIEST:
        return log.log_start_offset, -1
    async with node.search_lock:
        if timestamp == _MAX_TIMESTAMP:
            return await asyncio.to_thread(log.latest_timestamp)
        return await asyncio.to_thread(log.offset_at_time, timestamp)
