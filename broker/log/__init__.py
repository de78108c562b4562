"""The log of one partition: segments, sparse indexes, recovery, producer state. No sockets."""

from headworks._broker.log.config import CompactionConfig, LogConfig
from headworks._broker.log.open_file import Descriptor
from headworks._broker.log.partition import OffsetOutOfRangeError, PartitionLog
from headworks._broker.log.producer_state import (
    MAX_PRODUCERS,
    DuplicateError,
    OutOfSequenceError,
    ProducerStates,
    Roster,
    StaleEpochError,
)
from headworks._broker.log.recovery import Recovery, open_log
from headworks._broker.log.segment import FlushFailedError, Segment

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
    "StaleEpochError",
    "open_log",
]
