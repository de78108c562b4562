"""The commit log: numbered records, the only place where offsets live.

Rules:

- `commits/<n>.json` is created only if absent (`places.create`): of two
  loaders one wins. That creation is the commit; everything after it can be done again.
- A record holds everything that the work after it needs, and all offsets of all topics.
- What is long and seldom changes (schema texts, the folders of relocated partitions) is kept by its
  fingerprint beside the log, durable before a record names it.
- A record is checksummed; one that does not match is CorruptError, never guessed at.
- `commits/<n>.applied` says that the work after commit n is done.
- Only the last record is ever needed; older ones are kept for people, and forgotten in the end.
  What was forgotten is noted first, so a chain that begins late is told from one that was cut.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from hadoop_loader._storage.filesystem import (
    AnyPath,
    create_exclusive,
    modified_time,
    sorted_glob,
    write_atomically,
    write_durably,
)
from hadoop_loader._storage.fsync import sync_folder
from headworks.errors import CorruptError, UsageError

__all__ = [
    "Commit",
    "CommitFile",
    "CommitLog",
    "ExpiredCommits",
    "Relocation",
    "TableState",
    "TopicCommit",
    "fingerprint",
]

_CLOCK_SKEW_SECONDS = 86_400.0


@dataclass(frozen=True, slots=True)
class CommitFile:
    """A file of the load: where it was staged, and where it belongs (under the warehouse).

    `day` is the value of the partition column: a day, or an hour of it.
    """

    staged: str
    target: str
    table: str
    day: str
    rows: int
    bytes: int


@dataclass(frozen=True, slots=True)
class Relocation:
    """A partition that gets a new folder in place of another; paths are under the warehouse."""

    table: str
    day: str
    folder: str
    retired: str


@dataclass(frozen=True, slots=True)
class TopicCommit:
    """What the load did for one topic; `windows`: start in ms to counts, for the audit.

    Counts are net: what a load reads again in place of old rows adds only the difference.
    """

    ranges: dict[str, list[int]]
    rows: int
    bytes: int
    quarantined: int
    lost: int
    files: int
    versions: dict[str, int]
    windows: dict[str, dict[str, int]]
    first_event: int | None
    last_event: int | None


@dataclass(frozen=True, slots=True)
class TableState:
    """A topic's table: `projections` are (first load, version, schema id, fingerprint).

    `source`: the table over the files, if it is not of the view's name (a rebuilt one). Sums of
    all loads so far: `rows`, `files`, `quarantined`, `lost`; `load` was the last one, at
    `loaded_ms`. `bytes_a_day` is what the topic's last load measured.
    """

    table: str
    subject: str
    projections: list[list[Any]]
    record_bytes: float = 200.0
    source: str = ""
    hourly: bool = False
    bytes_a_day: float = 0.0
    rows: int = 0
    files: int = 0
    quarantined: int = 0
    lost: int = 0
    load: int = 0
    loaded_ms: int = 0

    @property
    def files_table(self) -> str:
        """The name of the table over the files, and of its folder."""
        return self.source or self.table

    def changed_by(self, load: int) -> bool:
        """Whether the table got its columns by this load."""
        return bool(self.projections[-1][0] == load)

    @property
    def version(self) -> int:
        """The version that rows are written in now."""
        return int(self.projections[-1][1])


@dataclass(frozen=True, slots=True)
class Commit:
    """One load, as it was committed; `kind` says what it was for.

    `layouts`: table over files to the fingerprint of its relocated partitions' folders.
    """

    number: int
    created_ms: int
    previous: str
    offsets: dict[str, dict[str, int]]
    tables: dict[str, TableState]
    topics: dict[str, TopicCommit] = field(default_factory=dict)
    files: list[CommitFile] = field(default_factory=list)
    quarantine: bool = False
    kind: str = "load"
    layouts: dict[str, str] = field(default_factory=dict)
    relocations: list[Relocation] = field(default_factory=list)
    retired_tables: list[str] = field(default_factory=list)

    def committed(self, topic: str) -> dict[int, int]:
        """The next offset to load of each partition of a topic."""
        return {int(p): offset for p, offset in self.offsets.get(topic, {}).items()}


@dataclass(frozen=True, slots=True)
class ExpiredCommits:
    """All commits up to number `through`, whose checksum was this, are gone on purpose."""

    through: int = 0
    checksum: str = ""


def fingerprint(text: str) -> str:
    """What a schema text is filed under."""
    return hashlib.sha256(text.encode()).hexdigest()


class CommitLog:
    """The commit log in `folder` (made if absent).

    `record_folder`: where a record is written before it gets its name, if its writer has one.
    """

    def __init__(self, folder: AnyPath, record_folder: AnyPath | None = None) -> None:
        self._record_folder = record_folder
        self._commits = folder / "commits"
        self._schemas = folder / "schemas"
        self._layouts = folder / "layouts"
        self._retired = folder / "retired"
        self._last_run = folder / "last-run.report"
        self._restoring = folder / "restoring"
        self._forgotten = folder / "forgotten.json"
        self._commits.mkdir(parents=True, exist_ok=True)
        self._schemas.mkdir(exist_ok=True)
        self._texts: dict[str, str] = {}

    def numbers(self) -> list[int]:
        """The numbers of all commits, ascending."""
        return sorted(int(p.stem) for p in self._commits.glob("*.json") if p.stem.isdecimal())

    def latest(self) -> Commit | None:
        """The last commit, or None before the first."""
        numbers = self.numbers()
        return self.read(numbers[-1]) if numbers else None

    def read(self, number: int) -> Commit:
        """Commit `number`; CorruptError if its bytes are not what was written."""
        path = self._path(number)
        try:
            record = json.loads(path.read_text(encoding="utf-8"))
            body, checksum = record["commit"], record["checksum"]
        except (ValueError, KeyError, TypeError):
            raise _corrupt(path) from None
        if _checksum(body) != checksum or body["number"] != number:
            raise _corrupt(path)
        return _from_json(body)

    def checksum(self, commit: Commit | None) -> str:
        """What the next commit names as its predecessor."""
        return "" if commit is None else _checksum(_body(commit))

    def create(self, commit: Commit) -> None:
        """Commit. Raises UsageError if another loader has taken the number, or the warehouse."""
        body = _body(commit)
        path = self._path(commit.number)
        record = {"checksum": _checksum(body), "commit": body}
        try:
            text = json.dumps(record, separators=(",", ":"), sort_keys=True)
            create_exclusive(path, text, beside=self._record_folder)
        except FileExistsError:
            raise UsageError(
                f"another loader has made load {commit.number} of {self._commits.parent.parent}",
                fix="let one loader at a time work on a warehouse; nothing was lost, load again",
            ) from None
        except FileNotFoundError:
            raise UsageError(
                f"another loader has taken {self._commits.parent.parent} over from this one, which "
                "it could not reach",
                fix="nothing was lost: the next run takes up what that one leaves",
            ) from None

    def expired(self) -> ExpiredCommits:
        """What `forget` has removed."""
        if not self._forgotten.exists():
            return ExpiredCommits()
        return ExpiredCommits(**json.loads(self._forgotten.read_text(encoding="utf-8")))

    def expire(self, last: int) -> None:
        """Remove all but the `last` commits, their reports, and layouts that none of them names.

        After a crash anywhere in here the next time removes what this one has left.
        """
        numbers = self.numbers()
        if len(numbers) <= last:
            return
        through, oldest = self.read(numbers[-last - 1]), self.read(numbers[-last])
        if through.number > self.expired().through:
            noted = {"through": through.number, "checksum": self.checksum(through)}
            write_atomically(self._forgotten, json.dumps(noted), durable=True)
        # A record goes after what lies beside it: it is by the records that the rest is found.
        for path in sorted(sorted_glob(self._commits, "*"), key=_is_record):
            if path.stem.isdecimal() and int(path.stem) <= through.number:
                path.unlink()
        latest = self.read(numbers[-1])
        named = {*oldest.layouts.values(), *latest.layouts.values()}
        for path in self._layouts.glob("[!.]*.json"):
            # One that is named in between was made after the oldest commit; clocks may differ.
            younger = modified_time(path) > oldest.created_ms / 1000 - _CLOCK_SKEW_SECONDS
            if path.stem not in named and not younger:
                path.unlink()

    def is_applied(self, number: int) -> bool:
        """Whether all work after commit `number` is done."""
        return self._path(number).with_suffix(".applied").exists()

    def mark_applied(self, number: int) -> None:
        """Say that all work after commit `number` is done."""
        write_durably(self._path(number).with_suffix(".applied"), "")
        sync_folder(self._commits)

    def store_schema(self, text: str) -> str:
        """Keep a schema text for ever; its fingerprint."""
        return self._keep(self._schemas, ".avsc", text)

    def schema(self, key: str) -> str:
        """The schema text of a fingerprint; CorruptError if it is gone or another."""
        return self._kept(self._schemas / f"{key}.avsc")

    def store_layout(self, folders: Mapping[str, str]) -> str:
        """Keep where the relocated partitions of a table are (day to folder); its fingerprint."""
        return self._keep(self._layouts, ".json", json.dumps(folders, sort_keys=True))

    def layout(self, commit: Commit | None, table: str) -> dict[str, str]:
        """The folders of a table's relocated partitions after `commit`, by day."""
        key = commit.layouts.get(table) if commit else None
        return json.loads(self._kept(self._layouts / f"{key}.json")) if key else {}

    def write_report(self, number: int, report: Mapping[str, Any]) -> None:
        """Put what a run told its user beside the commit that it made (nothing depends on it)."""
        write_atomically(
            self._path(number).with_suffix(".report"), json.dumps(report, indent=1), durable=False
        )

    def write_last_run(self, report: Mapping[str, Any]) -> None:
        """Put what a load told its user where the next one's takes its place, commit or not."""
        write_atomically(self._last_run, json.dumps(report, indent=1), durable=False)

    def last_run(self) -> dict[str, Any] | None:
        """What the last load told its user, if one came to that."""
        if not self._last_run.exists():
            return None
        return dict(json.loads(self._last_run.read_text(encoding="utf-8")))

    def tables_to_restore(self) -> set[str]:
        """The tables over files of which the metastore may know a part only."""
        try:
            return set(json.loads(self._restoring.read_text(encoding="utf-8")))
        except FileNotFoundError:
            return set()

    def set_tables_to_restore(self, tables: Collection[str]) -> None:
        """Remember, durably, that these tables are being defined again; none: all are."""
        if tables:
            write_atomically(self._restoring, json.dumps(sorted(tables)), durable=True)
        else:
            self._restoring.unlink(missing_ok=True)
            sync_folder(self._restoring.parent)

    def retire(self, commit: Commit, since_ms: int) -> None:
        """Remember the folders and tables that nobody is sent to any more, since then."""
        folders = [r.retired for r in commit.relocations]
        if folders or commit.retired_tables:
            record = {
                "since_ms": since_ms,
                "folders": folders,
                "tables": commit.retired_tables,
            }
            self._retired.mkdir(exist_ok=True)
            write_durably(self._retired / f"{commit.number:08d}.json", json.dumps(record))

    def retired(self) -> dict[AnyPath, dict[str, Any]]:
        """What was retired and is not removed yet, by the file that remembers it."""
        return {
            path: json.loads(path.read_text(encoding="utf-8"))
            for path in sorted_glob(self._retired, "*.json")
        }

    def _keep(self, folder: AnyPath, suffix: str, text: str) -> str:
        key = fingerprint(text)
        path = folder / f"{key}{suffix}"
        if key not in self._texts and not path.exists():
            folder.mkdir(exist_ok=True)
            write_atomically(path, text, durable=True)
        self._texts[key] = text
        return key

    def _kept(self, path: AnyPath) -> str:
        key = path.stem
        if key not in self._texts:
            text = path.read_text(encoding="utf-8") if path.exists() else ""
            if fingerprint(text) != key:
                raise _corrupt(path)
            self._texts[key] = text
        return self._texts[key]

    def _path(self, number: int) -> AnyPath:
        return self._commits / f"{number:08d}.json"


def _from_json(body: Mapping[str, Any]) -> Commit:
    return Commit(
        **{
            **body,
            "tables": {topic: TableState(**state) for topic, state in body["tables"].items()},
            "topics": {topic: TopicCommit(**found) for topic, found in body["topics"].items()},
            "files": [CommitFile(**file) for file in body["files"]],
            "relocations": [Relocation(**moved) for moved in body.get("relocations", ())],
        }
    )


def _body(commit: Commit) -> dict[str, Any]:
    """The commit as JSON values (dataclasses.asdict would copy every count)."""
    return {
        **_members(commit),
        "tables": {topic: _members(state) for topic, state in commit.tables.items()},
        "topics": {topic: _members(found) for topic, found in commit.topics.items()},
        "files": [_members(file) for file in commit.files],
        "relocations": [_members(moved) for moved in commit.relocations],
    }


def _members(value: Commit | TableState | TopicCommit | CommitFile | Relocation) -> dict[str, Any]:
    return {f.name: getattr(value, f.name) for f in fields(value)}


def _checksum(body: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()


def _is_record(path: AnyPath) -> bool:
    return path.name.endswith(".json")


def _corrupt(path: AnyPath) -> CorruptError:
    return CorruptError(
        f"{path} is not what the loader wrote",
        fix="restore it from a backup of the warehouse; do not delete it: it holds the offsets",
    )
