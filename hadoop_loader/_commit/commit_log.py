"""The commit log of a warehouse: numbered records, and the only home of offsets.

    commits/<n>.json      the record of commit n (`commit_record`)
    commits/<n>.applied   all work after commit n is done
    commits/<n>.report    what the operation reported; nothing depends on it
    schemas/, layouts/, field-ids/
                          texts that records name by fingerprint (`text_store`)
    held/                 tables whose part of a commit is not applied (`held_tables`)
    retired/              what commits replaced (`retired_files`)
    forgotten.json        the last commit that was expired
    restoring             tables that the metastore may know only in part
    last-run.report       what the last load reported, whether it committed or not

Rules:

- A record is created only if absent (`create_exclusive`): of two loaders, one wins. That creation
  is the commit, and everything after it can be repeated.
- Only the last record is needed. Older ones stay for people to read, until `expire` removes them.
- `expire` first notes the last record that it removes. A chain that starts late was expired; a
  chain with a gap was damaged (`verify`).
- The files beside a record are written after it. If one is newer than every record, a record was
  lost, and with it the offsets of its load. Nothing goes on then: its rows would come twice.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from hadoop_loader._commit import commit_record
from hadoop_loader._commit.commit_record import Commit
from hadoop_loader._commit.held_tables import HeldTables
from hadoop_loader._commit.log_files import read_json, read_text
from hadoop_loader._commit.retired_files import RetiredFiles
from hadoop_loader._commit.text_store import TextStore
from hadoop_loader._storage.filesystem import (
    AnyPath,
    create_exclusive,
    sorted_glob,
    write_atomically,
    write_durably,
)
from hadoop_loader._storage.fsync import sync_folder
from headworks.errors import UsageError

_CLOCK_SKEW_SECONDS = 86_400.0


@dataclass(frozen=True, slots=True)
class ExpiredCommits:
    """The commits that `expire` has removed."""

    through: int = 0  # the number of the last one; 0: none
    checksum: str = ""  # its checksum


class CommitLog:
    """The commit log in `folder`, which is created if absent.

    `record_folder`: where a record is written before it gets its name, if the loader has a folder
    of its own. If that folder is removed, the loader can no longer commit.
    """

    def __init__(self, folder: AnyPath, record_folder: AnyPath | None = None) -> None:
        self.schemas = TextStore(folder / "schemas", ".avsc")  # every schema of every table
        # Replaced files that queries may still read.
        self.retired = RetiredFiles(folder / "retired")
        self.held = HeldTables(folder / "held")  # tables whose last commit is not applied
        self._warehouse = folder.parent  # named in errors
        self._record_folder = record_folder  # see the class
        self._commits = folder / "commits"  # the records, by number
        self.field_ids = TextStore(folder / "field-ids", ".json")  # Parquet field ids of tables
        self._layouts = TextStore(folder / "layouts", ".json")  # partition folders of tables
        self._last_run = folder / "last-run.report"  # for `load status`
        self._restoring = folder / "restoring"  # tables that are being defined again
        self._expired = folder / "forgotten.json"  # the last commit whose record was removed
        self._read: tuple[int, str, Commit] | None = None  # the last that was read, and its text
        self._commits.mkdir(parents=True, exist_ok=True)

    @classmethod
    def of(cls, root: AnyPath) -> CommitLog:
        """Return the log of the warehouse in `root`; UsageError if it is none."""
        if not (root / "_headworks" / "commits").is_dir():
            raise no_warehouse_error(root)
        return cls(root / "_headworks")

    def numbers(self) -> list[int]:
        """Return the numbers of all commits, ascending; CorruptError if the newest are lost."""
        found = [path for path in self._commits.glob("*") if path.stem.isdecimal()]
        numbers = sorted(int(path.stem) for path in found if _is_record(path))
        beside = max((path for path in found if not _is_record(path)), key=_number, default=None)
        if beside is not None and _number(beside) > (numbers[-1] if numbers else 0):
            raise commit_record.lost_error(self._path(_number(beside)), beside)
        return numbers

    def latest(self) -> Commit | None:
        """Return the last commit, or None before the first."""
        numbers = self.numbers()
        return self.read(numbers[-1]) if numbers else None

    def read(self, number: int) -> Commit:
        """Return commit `number`; CorruptError if its bytes are not what was written."""
        path = self._path(number)
        text, known = read_text(path), self._read
        if known is None or known[:2] != (number, text):  # a load reads the last one often
            known = self._read = number, text, commit_record.decode(text, number, path)
        return known[2]

    def create(self, commit: Commit) -> None:
        """Commit: create the record, if no other loader has.

        Raises UsageError if another loader took the number, or took the warehouse over.
        """
        path = self._path(commit.number)
        try:
            create_exclusive(path, commit_record.encode(commit), beside=self._record_folder)
        except FileExistsError:
            raise UsageError(
                f"another loader has made load {commit.number} of {self._warehouse}",
                fix="let one loader at a time work on a warehouse; nothing was lost, load again",
            ) from None
        except FileNotFoundError:
            raise UsageError(
                f"another loader has taken {self._warehouse} over from this one, which "
                "it could not reach",
                fix="nothing is lost, and the next run finishes the work of that one",
            ) from None

    def is_applied(self, number: int) -> bool:
        """Return whether all work after commit `number` is done."""
        return self._path(number).with_suffix(".applied").exists()

    def mark_applied(self, number: int) -> None:
        """Record durably that all work after commit `number` is done."""
        write_durably(self._path(number).with_suffix(".applied"), "")
        sync_folder(self._commits)

    def expired(self) -> ExpiredCommits:
        """Return what `expire` has removed."""
        if not self._expired.exists():
            return ExpiredCommits()
        try:
            return ExpiredCommits(**read_json(self._expired))
        except TypeError:
            raise commit_record.corrupt_error(self._expired) from None

    def expire(self, kept: int) -> None:
        """Remove all but the last `kept` commits, their reports, and layouts that none names.

        A commit with a held table stays, and all later ones. After a crash, the next call removes
        what this one has left.
        """
        numbers = self.numbers()
        held = min((one.number for one in self.held.entries()), default=None)
        if held is not None:
            kept = max(kept, sum(number >= held for number in numbers))
        if len(numbers) <= kept:
            return
        through, oldest = self.read(numbers[-kept - 1]), self.read(numbers[-kept])
        if through.number > self.expired().through:
            noted = {"through": through.number, "checksum": commit_record.checksum(through)}
            write_atomically(self._expired, json.dumps(noted), durable=True)
        # A record is removed after the files beside it, which are found by its number.
        for path in sorted(sorted_glob(self._commits, "*"), key=_is_record):
            if path.stem.isdecimal() and int(path.stem) <= through.number:
                path.unlink()
        latest = self.read(numbers[-1])
        # A layout that commits in between name was written after the oldest; clocks may differ.
        written_before = oldest.created_ms / 1000 - _CLOCK_SKEW_SECONDS
        used = {*oldest.layouts.values(), *latest.layouts.values()}
        self._layouts.remove_unused(used, written_before)

    def store_layout(self, folders: Mapping[str, str]) -> str:
        """Store the folders of a table's relocated partitions by day; return the fingerprint."""
        return self._layouts.put(json.dumps(folders, sort_keys=True))

    def layout(self, commit: Commit | None, table: str) -> dict[str, str]:
        """Return the folders of a table's relocated partitions after `commit`, by day."""
        key = commit.layouts.get(table) if commit else None
        return json.loads(self._layouts.get(key)) if key else {}

    def write_report(self, number: int, report: Mapping[str, Any]) -> None:
        """Write the report of an operation beside its commit."""
        path = self._path(number).with_suffix(".report")
        write_atomically(path, json.dumps(report), durable=False)

    def write_last_run(self, report: Mapping[str, Any]) -> None:
        """Replace the report of the last load, whether it committed or not."""
        write_atomically(self._last_run, json.dumps(report), durable=False)

    def last_run(self) -> dict[str, Any] | None:
        """Return the report of the last load, or None before the first."""
        if not self._last_run.exists():
            return None
        return dict(read_json(self._last_run))

    def tables_to_restore(self) -> set[str]:
        """Return the tables over files that the metastore may know only in part."""
        try:
            return set(read_json(self._restoring))
        except FileNotFoundError:
            return set()

    def set_tables_to_restore(self, tables: Collection[str]) -> None:
        """Record durably which tables are being defined again; empty when all are done."""
        if tables:
            write_atomically(self._restoring, json.dumps(sorted(tables)), durable=True)
        else:
            self._restoring.unlink(missing_ok=True)
            sync_folder(self._restoring.parent)

    def _path(self, number: int) -> AnyPath:
        return self._commits / f"{number:08d}.json"


def _number(path: AnyPath) -> int:
    return int(path.stem)


def _is_record(path: AnyPath) -> bool:
    return path.name.endswith(".json")


def no_warehouse_error(root: AnyPath) -> UsageError:
    """Return the error for a folder that no load has committed to."""
    return UsageError(
        f"{root} is not a warehouse: it holds no commits",
        fix="run `headworks load run`, or give --warehouse or --data-dir",
    )
