"""One commit as a value: what a transaction changed, and the state of the warehouse after it. Pure.

Rules:

- A record holds everything that the work after the commit needs, and all offsets of all topics.
- It is written as JSON with a checksum. `decode` raises CorruptError for other bytes: it never
  guesses. The names of the fields are the file format.
- Long texts that seldom change (schemas, partition folders) are named by their fingerprint.
- A field that a later release added is left out while it has its default: the checksum of an older
  record stays what it was.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from headworks.errors import CorruptError

# Of a field that a later release added: it is written only if it holds something.
_ADDED = {"added": True}
SEVERAL_TIMES = "*"  # no column has this name


@dataclass(frozen=True, slots=True)
class CommitFile:
    """A data file of the commit. Paths are relative to the warehouse."""

    staged: str  # where a task wrote it
    target: str  # where it belongs
    table: str
    day: str  # the value of the partition column: a day, or an hour of one
    rows: int
    bytes: int


@dataclass(frozen=True, slots=True)
class Relocation:
    """A partition that moves to a new folder. Paths are relative to the warehouse."""

    table: str
    day: str
    folder: str  # the new folder
    retired: str  # the folder it replaces


@dataclass(frozen=True, slots=True)
class TopicCommit:
    """The changes of a commit to one topic.

    Counts are net: a rewind counts only the difference from the rows that it replaced.
    """

    ranges: dict[str, list[int]]  # partition to [first offset, end offset)
    rows: int
    bytes: int
    quarantined: int
    lost: int  # messages that retention removed before they were loaded
    files: int
    versions: dict[str, int]  # schema version to the number of rows written with it
    windows: dict[str, dict[str, int]]  # window start in ms to counts, for the audit
    first_event: int | None  # event times in ms
    last_event: int | None
    damaged: int = 0  # messages in damaged batches that were skipped


@dataclass(frozen=True, slots=True)
class TableState:
    """A topic's table after the commit; the counts are sums over all commits."""

    table: str
    subject: str
    projections: list[list[Any]]  # [first commit, schema version, schema id, fingerprint], in order
    record_bytes: float = 200.0  # the mean size of a message in the last load
    source: str = ""  # the table over the files, if a rebuild gave it another name than the view
    hourly: bool = False  # partitions are hours
    bytes_a_day: float = 0.0  # the traffic that the last load measured
    rows: int = 0
    files: int = 0
    quarantined: int = 0
    lost: int = 0
    load: int = 0  # the last commit that changed the topic
    loaded_ms: int = 0  # when that was
    damaged: int = 0
    field_ids: str = field(
        default="", metadata=_ADDED
    )  # fingerprint of the Parquet field ids; none before the first ones
    earlier_lives: int = field(default=0, metadata=_ADDED)  # how often the topic was made again
    # Rows and quarantined messages that erasure and retention removed; the audit still counts them.
    removed: int = field(default=0, metadata=_ADDED)
    # Sensitive paths of schemas that `projections` does not have, or no longer.
    sensitive: list[list[str]] = field(default_factory=list, metadata=_ADDED)
    # Whether `sensitive` has the paths of all versions of the subject: no earlier release did so.
    marked: bool = field(default=False, metadata=_ADDED)
    # The statistics in the metastore: the commit that set them, rows, and estimated bytes.
    statistics: list[int] = field(default_factory=list, metadata=_ADDED)
    # The column from whose times the partitions of all rows come, and its logical type; or
    # SEVERAL_TIMES; none before.
    partition_time: str = field(default="", metadata=_ADDED)

    @property
    def files_table(self) -> str:
        """The name of the table over the files, and of its folder."""
        return self.source or self.table

    def changed_by(self, load: int) -> bool:
        """Return whether commit `load` gave the table its columns."""
        return bool(self.projections[-1][0] == load)

    @property
    def version(self) -> int:
        """The schema version that new rows are written with."""
        return int(self.projections[-1][1])


@dataclass(frozen=True, slots=True)
class Commit:
    """One commit."""

    number: int
    created_ms: int
    previous: str  # the checksum of the commit before
    offsets: dict[str, dict[str, int]]  # topic and partition to the next offset to load
    tables: dict[str, TableState]  # by topic
    topics: dict[str, TopicCommit] = field(default_factory=dict)  # those that it changed
    files: list[CommitFile] = field(default_factory=list)
    quarantine: bool = False  # some of the files are of the quarantine table
    kind: str = "load"  # the operation
    layouts: dict[str, str] = field(default_factory=dict)  # table to the fingerprint of its layout
    relocations: list[Relocation] = field(default_factory=list)
    retired_tables: list[str] = field(default_factory=list)  # replaced by a rebuild
    cluster: str = field(default="", metadata=_ADDED)  # the id of the cluster of the offsets
    # By topic: the id of the topic that the offsets are of.
    topic_ids: dict[str, str] = field(default_factory=dict, metadata=_ADDED)
    # Tables that are removed at once: each table over files, and its view.
    dropped_tables: list[list[str]] = field(default_factory=list, metadata=_ADDED)
    # By table and day: the folder of a partition that is removed at once.
    dropped_days: dict[str, dict[str, str]] = field(default_factory=dict, metadata=_ADDED)
    # By topic: the reason of a refusal that loads do not fail for.
    acknowledged: dict[str, str] = field(default_factory=dict, metadata=_ADDED)
    # Tables over files whose rows are all in the latest schema from this commit on.
    settled_tables: list[str] = field(default_factory=list, metadata=_ADDED)

    def committed(self, topic: str) -> dict[int, int]:
        """Return the next offset to load of each partition of a topic."""
        return {int(p): offset for p, offset in self.offsets.get(topic, {}).items()}


def encode(commit: Commit) -> str:
    """Return the text of a commit record."""
    body = _body(commit)
    record = {"checksum": _checksum(body), "commit": body}
    return json.dumps(record, separators=(",", ":"), sort_keys=True)


def decode(text: str, number: int, file: object) -> Commit:
    """Return the commit in a record; CorruptError, with the file, if it is not commit `number`."""
    try:
        record = json.loads(text)
        body, expected = record["commit"], record["checksum"]
    except (ValueError, KeyError, TypeError):
        raise corrupt_error(file) from None
    if _checksum(body) != expected or body["number"] != number:
        raise corrupt_error(file)
    return Commit(
        **{
            **body,
            "tables": {topic: TableState(**state) for topic, state in body["tables"].items()},
            "topics": {topic: TopicCommit(**counts) for topic, counts in body["topics"].items()},
            "files": [CommitFile(**file) for file in body["files"]],
            "relocations": [Relocation(**moved) for moved in body.get("relocations", ())],
        }
    )


def checksum(commit: Commit | None) -> str:
    """Return what the next commit names as `previous`: empty before the first."""
    return "" if commit is None else _checksum(_body(commit))


def corrupt_error(file: object) -> CorruptError:
    """Return the error for a file of the log that was changed or damaged."""
    return CorruptError(
        f"{file} is not what the loader wrote",
        fix="restore it from a backup of the warehouse (docs/backup.md); do not delete it: it "
        "holds the offsets",
    )


def lost_error(record: object, beside: object) -> CorruptError:
    """Return the error for a record that is not there, although `beside` was written after it."""
    return CorruptError(
        f"{record} is missing, and {beside} was written after it",
        fix="restore it from a backup of the warehouse (docs/backup.md); do not delete the files "
        "beside it: a load without it would bring its rows again",
    )


def _body(commit: Commit) -> dict[str, Any]:
    """Return the commit as JSON values (dataclasses.asdict would copy every count)."""
    return {
        **_members(commit),
        "tables": {topic: _members(state) for topic, state in commit.tables.items()},
        "topics": {topic: _members(counts) for topic, counts in commit.topics.items()},
        "files": [_members(file) for file in commit.files],
        "relocations": [_members(moved) for moved in commit.relocations],
    }


def _members(value: Commit | TableState | TopicCommit | CommitFile | Relocation) -> dict[str, Any]:
    return {
        f.name: found
        for f in fields(value)
        if (found := getattr(value, f.name)) or not f.metadata.get("added")
    }


def _checksum(body: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()
