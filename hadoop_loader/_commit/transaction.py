"""A piece of work on a warehouse: finish the last one, stage, commit, apply. Whatever it is for.

Rules:

- Until the commit nothing outside the staging folder has changed; after it nothing can be lost.
- What is staged for a commit is removed when nobody can make that commit any more. Where a loader
  may have been outlived and still be at it (`sole` is not given), that is when the commit's number
  is taken, if need be by a commit that brings nothing.
- Such a one may still say to the metastore what is not true any more, once. When it finds that it
  was outlived it notes the tables that it was at, and the next load defines them again.
- What nobody is sent to any more is removed a while after the commit that replaced it, by whatever
  works on the warehouse then: a query that began before still reads it.
"""

from __future__ import annotations

import logging
import time
import uuid
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Protocol

from hadoop_loader._commit.commit_builder import CommitBuilder
from hadoop_loader._commit.commit_log import Commit, CommitLog
from hadoop_loader._commit.policy import Policy
from hadoop_loader._commit.roll_forward import (
    Catalog,
    PublishCounts,
    apply_commit,
    restore_metastore,
)
from hadoop_loader._commit.topic_plans import SchemaLookup
from hadoop_loader._fetch.kafka_log import Log
from hadoop_loader._storage.failpoints import StepHook, failpoint
from hadoop_loader._storage.filesystem import (
    AnyPath,
    remove_empty,
    remove_tree,
    sorted_glob,
)
from hadoop_loader._storage.fsync import sync_folders
from hadoop_loader._tasks.load_task import Manifest, Task
from hadoop_loader._tasks.progress import watching
from hadoop_loader._tasks.rewrite_task import Rewrite, Rewritten
from headworks.errors import CorruptError, HeadworksError

__all__ = [
    "KEPT_COMMITS",
    "RETIRED_GRACE_SECONDS",
    "STAGING",
    "Jobs",
    "LoaderContext",
    "Progress",
    "Transaction",
]

Progress = Callable[[str, float | None], None]
STAGING = ".staging"
# Longer than the longest query is expected to take.
RETIRED_GRACE_SECONDS = 3600.0
# Commits that are kept for people to look at; what is more goes when there is a good deal of it.
KEPT_COMMITS = 1000
_EXPIRY_INTERVAL_COMMITS = 100
_LOG = logging.getLogger(__name__)


class Jobs(Protocol):
    """Where bins are read and files rewritten: Spark, or this process in tests."""

    def load(self, tasks: Sequence[Task]) -> Sequence[Manifest]:
        """Read bins."""
        ...

    def rewrite(self, rewrites: Sequence[Rewrite]) -> Sequence[Rewritten]:
        """Rewrite partitions."""
        ...

    def export(self, query: str, folder: AnyPath) -> None:
        """Write what a query answers into Parquet files of a new folder."""
        ...


@dataclass(frozen=True, slots=True)
class LoaderContext:
    """What a load works with; tests put other parts in."""

    root: AnyPath
    log: CommitLog
    broker: Log
    versions: Callable[[Collection[str]], Mapping[str, SchemaLookup]]
    jobs: Jobs
    catalog: Catalog
    publish: PublishCounts
    tasks: int
    policy: Policy = field(default_factory=Policy)
    on_step: StepHook = failpoint
    now: Callable[[], float] = time.time
    grace: float = RETIRED_GRACE_SECONDS
    fenced: bool = True


class Transaction:
    """One piece of work with `parts`.

    `progress` hears of every phase as it begins, and of the share of it that is done; `own` is in
    the names of folders that nobody else writes.
    """

    def __init__(self, parts: LoaderContext, progress: Progress | None = None) -> None:
        self.context = parts
        self.seconds: dict[str, float] = {}
        self._progress = progress
        self.writer_id = uuid.uuid4().hex[:8]

    def recover(self) -> Commit | None:
        """Finish what the last one left undone; the last commit."""
        last = self.context.log.latest()
        if last is not None:
            # First what other loads left: a table that apply() defines is not missing any more.
            parts, applied = self.context, self.context.log.is_applied(last.number)
            with self._made_good({state.files_table for state in last.tables.values()}):
                restore_metastore(
                    last, parts.log, parts.root, parts.catalog, parts.on_step, applied=applied
                )
            if not applied:
                with self.phase("recover"):
                    self._apply(last, again=True)
        if not self.context.fenced and self._staged(last):
            last = self.fence_other_loaders(last)
        self.remove_staging(last)
        self._sweep()
        return last

    def fence_other_loaders(self, last: Commit | None) -> Commit:
        """Let no other loader commit what it has made behind `last`; the commit that sees to it."""
        if self.context.fenced and last is not None:
            return last
        return self.commit(self.new_commit(last, "takeover"))

    def staging(self, number: int) -> AnyPath:
        """The folder of what commit `number` is going to name, made."""
        folder = self.context.root / STAGING / f"{number:08d}-{self.writer_id}"
        folder.mkdir(parents=True, exist_ok=True)
        sync_folders([self.context.root, folder.parent])
        return folder

    def commit(self, draft: CommitBuilder) -> Commit:
        """Commit, apply, clean up."""
        with self.phase("commit"):
            commit = draft.commit(self.now_ms())
            self.context.on_step("committing")
            self.context.log.create(commit)
        _log(commit)
        self.context.on_step("committed")
        with self.phase("apply"):
            self._apply(commit, again=False)
        self.remove_staging(commit)
        if commit.number % _EXPIRY_INTERVAL_COMMITS == 0:
            self._forget()
        return commit

    def remove_staging(self, last: Commit | None) -> None:
        """Remove what was staged here, and what nobody can commit any more."""
        if self.context.fenced:
            remove_tree(self.context.root / STAGING)
            return
        # Told by its name alone: what another one stages meanwhile is for a later number.
        for folder in sorted_glob(self.context.root / STAGING, "*"):
            if folder.name <= _done(last) or folder.name.endswith(self.writer_id):
                remove_tree(folder)

    def now_ms(self) -> int:
        """The time, in ms."""
        return int(self.context.now() * 1000)

    def new_commit(self, last: Commit | None, kind: str) -> CommitBuilder:
        """What follows `last`, empty."""
        return CommitBuilder(self.context.log, self.context.root, last, kind)

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Tell a phase, and take its time."""
        if self._progress is not None:
            self._progress(name, None)
        began = time.monotonic()
        yield
        took = time.monotonic() - began
        self.seconds[name] = round(self.seconds.get(name, 0.0) + took, 3)

    def load(self, tasks: Sequence[Task], staging: AnyPath, messages: int) -> list[Manifest]:
        """Read bins that hold so many messages, telling how far it is."""
        progress = self._progress
        tell = None if progress is None else lambda share: progress("read", share)
        with watching(staging, messages, tell):
            return list(self.context.jobs.load(tasks))

    def _staged(self, last: Commit | None) -> list[AnyPath]:
        """What is staged for commits that are still to come."""
        return [p for p in sorted_glob(self.context.root / STAGING, "*") if p.name > _done(last)]

    def _apply(self, commit: Commit, *, again: bool) -> None:
        parts = self.context
        changed = {s.files_table for s in commit.tables.values() if s.changed_by(commit.number)}
        with self._made_good(changed | {moved.table for moved in commit.relocations}):
            apply_commit(
                commit,
                parts.log,
                parts.root,
                parts.catalog,
                parts.publish,
                parts.on_step,
                again=again,
                now_ms=self.now_ms,
            )

    @contextmanager
    def _made_good(self, tables: Iterable[str]) -> Iterator[None]:
        """Have the next load define tables again, if statements about them break off.

        A loader that was outlived in one of them said it late, after what another one has said.
        """
        try:
            yield
        except Exception:
            if not self.context.fenced:
                with suppress(OSError, HeadworksError):
                    log = self.context.log
                    log.set_tables_to_restore(log.tables_to_restore().union(tables))
            raise

    def _forget(self) -> None:
        try:
            self.context.log.expire(KEPT_COMMITS)
        except CorruptError as error:  # no reason to stop: what is loaded is loaded
            _LOG.warning("no old commits are removed: %s", error.message)

    def _sweep(self) -> None:
        due = self.now_ms() - self.context.grace * 1000
        for path, record in self.context.log.retired().items():
            if record["since_ms"] <= due:
                self._remove(record)
                self.context.on_step("removing")
                path.unlink()

    def _remove(self, record: Mapping[str, Sequence[str]]) -> None:
        for table in record["tables"]:
            self.context.catalog.drop_table(table)
            remove_tree(self.context.root / table)
        for folder in record["folders"]:
            path = self.context.root / folder
            remove_tree(path)
            if path.parent.name.startswith("load-"):
                remove_empty(path.parent)


def _done(last: Commit | None) -> str:
    """Behind the names of all that was staged up to `last`, before those of what is to come."""
    return f"{last.number if last else 0:08d}~"


def _log(commit: Commit) -> None:
    """What was committed, partition by partition, for whoever looks for one offset."""
    for topic, found in commit.topics.items():
        for partition, (start, end) in found.ranges.items():
            _LOG.info(
                "%s %d: %s[%s] offsets %d to %d",
                commit.kind,
                commit.number,
                topic,
                partition,
                start,
                end - 1,
                extra={"topic": topic, "partition": int(partition), "start": start, "end": end},
            )
        if found.quarantined > 0 or found.lost:
            _LOG.warning(
                "%s %d: %s has %d bad and %d lost messages",
                commit.kind,
                commit.number,
                topic,
                found.quarantined,
                found.lost,
                extra={"topic": topic, "quarantined": found.quarantined, "lost": found.lost},
            )
