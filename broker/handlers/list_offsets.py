"""ListOffsets: the ends of a partition, or the first offset at or after a timestamp.

Rules:

- The answer minds every record that was acknowledged before the request. It waits for their flush,
  unless only the log start offset is asked for.
- A client that reads committed records only gets the last stable offset as the end.
- The search by timestamp reads batches, which may be large and compressed. It runs in a thread, one
  search at a time, so that no other client waits for it.
- A negative number names a place in the log and is never a timestamp. All of a log is local: the
  earliest local offset is the log start offset, and no offset is in tiered storage.
- Version 0 asks for several offsets: the newest that are not after a time. They are the end of the
  log, and the offsets where segments begin. The time of a segment is that of its last write.
"""

from __future__ import annotations

import asyncio
from typing import Any

from headworks._broker.handlers.leadership import expose_soon, partition_of
from headworks._broker.handlers.node import Node, Request
from headworks._broker.log.partition import LEADER_EPOCH
from headworks._broker.topics import HostedPartition, StorageFailureError
from headworks._kafka.error_codes import ErrorCode
from headworks._kafka.protocol.fetch import READ_COMMITTED
from headworks._kafka.protocol.messages import Fields
from headworks.errors import CorruptError

_LATEST, _EARLIEST, _MAX_TIMESTAMP = -1, -2, -3
_EARLIEST_LOCAL, _LATEST_TIERED, _EARLIEST_PENDING_UPLOAD = -4, -5, -6
_STARTS = (_EARLIEST, _EARLIEST_LOCAL)
_TIERED = (_LATEST_TIERED, _EARLIEST_PENDING_UPLOAD)
# The version from which a request may name a place
_PLACES = {
    _LATEST: 0,
    _EARLIEST: 0,
    _MAX_TIMESTAMP: 1,
    _EARLIEST_LOCAL: 8,
    _LATEST_TIERED: 9,
    _EARLIEST_PENDING_UPLOAD: 11,
}


async def list_offsets(node: Node, request: Request) -> Fields:
    """Answer for each partition on its own."""
    expose_soon(
        node,
        request,
        (
            (topic.name, asked.partition_index)
            for topic in request.message.topics
            for asked in topic.partitions
            if asked.timestamp not in _STARTS + _TIERED
        ),
    )
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
    if asked.timestamp < 0 and request.version < _PLACES.get(asked.timestamp, request.version + 1):
        return fields | {"error_code": ErrorCode.UNSUPPORTED_VERSION}
    try:
        if request.version == 0:
            await partition.wait_until_exposed()
            fields["offsets"] = _newest(node, partition, asked)
            return fields | {"error_code": ErrorCode.NONE}
        committed = getattr(request.message, "isolation_level", 0) == READ_COMMITTED
        found = await _find(node, partition, asked.timestamp, committed=committed)
    except CorruptError as error:
        partition.note_damage(str(error))
        return fields | {"error_code": ErrorCode.CORRUPT_MESSAGE}
    except (OSError, StorageFailureError):
        return fields | {"error_code": partition.failure_code}
    fields["error_code"] = ErrorCode.NONE
    if found is None:
        return fields | {"offset": -1, "timestamp": -1, "leader_epoch": -1}
    return fields | {"offset": found[0], "timestamp": found[1], "leader_epoch": LEADER_EPOCH}


def _newest(node: Node, partition: HostedPartition, asked: Any) -> list[int]:
    """Return at most `max_num_offsets` offsets that are not after the timestamp, newest first."""
    log, timestamp = partition.log, asked.timestamp
    start, end = log.log_start_offset, log.high_watermark
    if timestamp == _EARLIEST:
        found = [start]
    else:
        found = [
            min(max(segment.base_offset, start), end)
            for segment in log.segments
            if timestamp == _LATEST or segment.last_write_ms() <= timestamp
        ]
        if timestamp == _LATEST or timestamp >= node.clock() * 1000:
            found.append(end)
    return sorted(set(found), reverse=True)[: max(asked.max_num_offsets, 0)]


async def _find(
    node: Node, partition: HostedPartition, timestamp: int, *, committed: bool
) -> tuple[int, int] | None:
    log = partition.log
    if timestamp in _STARTS:
        return log.log_start_offset, -1
    if timestamp in _TIERED:
        return None
    await partition.wait_until_exposed()
    if timestamp == _LATEST:
        return log.last_stable_offset if committed else log.high_watermark, -1
    async with node.search_lock:
        if timestamp == _MAX_TIMESTAMP:
            return await asyncio.to_thread(log.latest_timestamp, committed=committed)
        return await asyncio.to_thread(log.offset_at_time, timestamp, committed=committed)
