"""The log of one partition: segments, sparse indexes, recovery, producer state. No sockets."""

from broker.log.config import CompactionConfig, LogConfig
from broker.log.descriptor import Descriptor
from broker.log.partition import OffsetOutOfRangeError, PartitionLog, Slice
from broker.log.producers import (
    MAX_PRODUCERS,
    DuplicateError,
    OutOfSequenceError,
    ProducerStates,
    Roster,
    StaleEpochError,
)
from broker.log.recovery import Recovery, open_log
from broker.log.segment import FlushFailedError, Segment

__all__ = [
    "MAX_PRODUCERS",
    "CompactionConfig",
    "Descriptor",
    "DuplicateError",
    "FlushFailedError",
    "LogConfig",
    "OffsetOutOfRangeError",
    "OutOfSequenceError",
    "PartitionLog",
    "ProducerStates",
    "Recovery",
    "Roster",
    "Segment",
    "Slice",
    "StaleEpochError",
    "open_log",
]
