"""Open the logs of a topic's partitions, and report those that cannot be opened.

Rules:

- This runs in a thread and uses nothing but files.
- A partition that fails to open does not keep others from being opened.
- After an error of the system (disk full, too many open files, no permission), a retry may succeed.
  A damaged log needs an operator and a restart.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from headworks._broker.log import FlushFailedError, LogConfig, PartitionLog, Recovery, open_log
from headworks._broker.open_file_limit import check_enough
from headworks._broker.topics.begun import BegunPartitions
from headworks.errors import CorruptError

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class OpenFailure:
    """Why a partition is not served; `passing`: it is worth trying again without a restart."""

    reason: str
    retryable: bool


@dataclass(slots=True)
class OpenedLogs:
    """The opened logs and the failures, by partition number."""

    logs: dict[int, PartitionLog] = field(default_factory=dict)
    refused: dict[int, OpenFailure] = field(default_factory=dict)
    cut_bytes: int = 0  # truncated from torn tails


def open_logs(
    topic: str,
    folders: Mapping[int, Path],
    config: LogConfig,
    known: Mapping[int, OpenFailure],
    begun: BegunPartitions,
) -> OpenedLogs:
    """Open the logs in these folders, and list them as begun.

    A failure that is `known` already is not logged again.
    """
    opened = OpenedLogs()
    for index, folder in folders.items():
        about: dict[str, object] = {"topic": topic, "partition": index}
        try:
            check_enough()
            log, recovery = open_log(folder, config, begun=folder.name in begun)
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
            _log_truncation(about, log, recovery)
        if index in known:
            _log.warning("partition %s-%d is served again", topic, index, extra=about)
    try:
        begun.add(folders[index].name for index in opened.logs)
    except OSError as error:  # a partition takes no batch before it is listed
        for index, log in opened.logs.items():
            log.abandon()
            opened.refused[index] = OpenFailure(str(error), retryable=True)
        opened.logs.clear()
    return opened


def _log_truncation(about: Mapping[str, object], log: PartitionLog, recovery: Recovery) -> None:
    kept = "not kept" if recovery.kept is None else f"kept in {recovery.kept}"
    _log.warning(
        "partition %s-%d: cut %d bytes after offset %d, %s: %s",
        about["topic"],
        about["partition"],
        recovery.cut_bytes,
        log.log_end_offset,
        kept,
        recovery.reason,
        extra={**about, "offset": log.log_end_offset, "bytes": recovery.cut_bytes},
    )
