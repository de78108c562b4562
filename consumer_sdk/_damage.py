"""Record batches that are damaged: the consumer stops at one, or steps over exactly that one.

Rules:

- The member first returns to the first offset that it misses. The next poll therefore meets the
  batch again, and `auto.offset.reset` never moves the member.
- The group's position moves past a damaged batch only on request, and the log names what it missed.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

import confluent_kafka

from consumer_sdk._membership import Membership
from consumer_sdk._message import Partition
from headworks._kafka.damaged_batch import (
    DamagedBatch,
    DamagedBatchError,
    damaged_batch,
    offset_after,
)

_log = logging.getLogger("headworks.consumer")


def damage_in(event: confluent_kafka.Message, membership: Membership) -> DamagedBatch | None:
    """Return the damaged batch that an event reports; the member then stands in front of it."""
    if damaged_batch(event) is None:
        return None
    at = Partition(event.topic() or "", event.partition() or 0)
    found = damaged_batch(event, membership.position(at))
    assert found is not None
    membership.resume(at, found.offset, processed=False)
    return found


def is_stale(lost: confluent_kafka.Message, position: int) -> bool:
    """Return whether an error after damage is about another offset than the member's position."""
    offset = lost.offset()
    return offset is not None and offset >= 0 and offset != position


def stop_at(batch: DamagedBatch) -> DamagedBatchError:
    """Return the error of a consumer that does not skip damage."""
    return DamagedBatchError(
        batch,
        fix="restore the partition from a copy, or skip this batch alone with skip_damaged=True",
    )


def step_over(client: Mapping[str, Any], batch: DamagedBatch, membership: Membership) -> int:
    """Continue after a damaged batch. Return how many offsets the group misses.

    `client` holds the properties of librdkafka that name the brokers. UnreachableError if no broker
    reports where the next batch begins; the member then still stands in front of this one.
    """
    following = offset_after(client, batch)
    missed = following - batch.offset
    if missed:
        _log.warning(
            "%s: skipped %d offsets, up to %d: %s",
            batch.place,
            missed,
            following,
            batch.reason,
            extra={"topic": batch.topic, "partition": batch.partition, "offset": batch.offset},
        )
        at = Partition(batch.topic, batch.partition)
        membership.resume(at, following, processed=True)
    return missed
