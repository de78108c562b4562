"""Opening a topic's partitions: the logs, and why others must not or cannot be served.

Rules: runs in a thread and touches nothing but files. A partition that is refused keeps nobody else
from being opened. What is refused for damage stays so until somebody has looked at it; what the
system did not let us open (no room, no more files, no permission) may be opened later.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from headworks._broker.log import FlushFailedError, LogConfig, PartitionLog, Recovery, open_log
from headworks._broker.open_file_limit import check_enough
from headworks.errors import CorruptError

__all__ = ["OpenFailure", "OpenedLogs", "open_logs"]

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class OpenFailure:
    """Why a partition is not served; `passing`: it is worth trying again without a restart."""

    reason: str
    retryable: bool


@dataclass(slots=True)
class OpenedLogs:
    """What became of partitions, by their numbers; `cut_bytes`: cut off torn tails."""

    logs: dict[int, PartitionLog] = field(default_factory=dict)
    refused: dict[int, OpenFailure] = field(default_factory=dict)
    cut_bytes: int = 0


def open_logs(
    topic: str, folders: Mapping[int, Path], config: LogConfig, known: Mapping[int, OpenFailure]
) -> OpenedLogs:
    """Open the logs in these folders; what is refused as it is `known` to be is not told again."""
    opened = OpenedLogs()
    for index, folder in folders.items():
        about: dict[str, object] = {"topic": topic, "partition": index}
        try:
            check_enough()
            log, recovery = open_log(folder, config)
        except (CorruptError, FlushFailedError, OSError) as error:
            refusal = OpenFailure(str(error), isinstance(error, OSError))
            opened.refused[index] = refusal
            if known.get(index) != refusal:
                _log.error(
                    "partition %s-%d is not served: %s", topic, index, refusal.reason, extra=about
                )
            continue
        opened.logs[index] = log
        opened.cut_bytes += recovery.cut_bytes
        if recovery.cut_bytes:
            _tell_cut(about, log, recovery)
        if index in known:
            _log.warning("partition %s-%d is served again", topic, index, extra=about)
    return opened


def _tell_cut(about: Mapping[str, object], log: PartitionLog, recovery: Recovery) -> None:
    _log.warning(
        "partition %s-%d: cut %d bytes after offset %d: %s",
        about["topic"],
        about["partition"],
        recovery.cut_bytes,
        log.log_end_offset,
        recovery.reason,
        extra={**about, "offset": log.log_end_offset, "bytes": recovery.cut_bytes},
    )
