"""The log of one partition: segments, sparse indexes, recovery, producer state, compaction.

`partition` appends, `segment` writes and syncs the files, `recovery` opens them after a crash.
"""

from headworks._broker.log.config import CompactionConfig, LogConfig
from headworks._broker.log.open_file import SegmentFile
from headworks._broker.log.partition import PartitionLog
from headworks._broker.log.producer_state import (
    MAX_PRODUCERS,
    DuplicateBatchError,
    InvalidProducerEpochError,
    OpenTransactionError,
    OutOfOrderSequenceError,
    ProducerLimit,
    ProducerStates,
)
from headworks._broker.log.recovery import Recovery, open_log
from headworks._broker.log.segment import FlushFailedError, LogSegment
from headworks._broker.log.slices import OffsetOutOfRangeError

__all__ = [
    "MAX_PRODUCERS",
    "CompactionConfig",
    "DuplicateBatchError",
    "FlushFailedError",
    "InvalidProducerEpochError",
    "LogConfig",
    "LogSegment",
    "OffsetOutOfRangeError",
    "OpenTransactionError",
    "OutOfOrderSequenceError",
    "PartitionLog",
    "ProducerLimit",
    "ProducerStates",
    "Recovery",
    "SegmentFile",
    "open_log",
]
