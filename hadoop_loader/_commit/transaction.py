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

from hadoop_loader._commit.commit_builder import Draft
from hadoop_loader._commit.commit_log import Commit, CommitLog
from hadoop_loader._commit.policy import Policy
from hadoop_loader._commit.roll_forward import Catalog, Publish, apply, restore
from hadoop_loader._commit.topic_plans import Told
from hadoop_loader._fetch.kafka_log import Log
from hadoop_loader._storage.failpoints import Reach, reach
from hadoop_loader._storage.filesystem import Place, matching, remove, remove_empty, sync_folders
from hadoop_loader._tasks.load_task import Manifest, Task
from hadoop_loader._tasks.progress import watching
from hadoop_loader._tasks.rewrite_task import Rewrite, Rewritten
from headworks.errors import CorruptError, HeadworksError

__all__ = ["GRACE", "KEPT", "STAGING", "Jobs", "Parts", "Progress", "Work"]

Progress = Callable[[str, float | None], None]
STAGING = ".staging"
# Longer than the longest query is expected to take.
GRACE = 3600.0
# Commits that are kept for people to look at; what is more goes when there is a good deal of it.
KEPT = 1000
_TOO_MANY = 100
_LOG = logging.getLogger(__name__)


class Jobs(Protocol):
    """Where bins are read and files rewritten: Spark, or this process in tests."""

    def load(self, tasks: Sequence[Task]) -> Sequence[Manifest]:
        """Read bins."""
        ...

    def rewrite(self, rewrites: Sequence[Rewrite]) -> Sequence[Rewritten]:
        """Rewrite partitions."""
        ...

    def export(self, query: str, folder: Place) -> None:
        """Write what a query answers into Parquet files of a new folder."""
        ...


@dataclass(frozen=True, slots=True)
class Parts:
    """What a load works with; tests put other parts in."""

    root: Place
    log: CommitLog
    broker: Log
    versions: Callable[[Collection[str]], Mapping[str, Told]]
    jobs: Jobs
    catalog: Catalog
    publish: Publish
    tasks: int
    policy: Policy = field(default_factory=Policy)
    reach: Reach = reach
    now: Callable[[], float] = time.time
    grace: float = GRACE
    sole: bool = True


class Work:
    """One piece of work with `parts`.

    `progress` hears of every phase as it begins, and of the share of it that is done; `own` is in
    the names of folders that nobody else writes.
    """

    def __init__(self, parts: Parts, progress: Progress | None = None) -> None:
        self.parts = parts
        self.seconds: dict[str, float] = {}
        self._progress = progress
        self.own = uuid.uuid4().hex[:8]

    def recover(self) -> Commit | None:
        """Finish what the last one left undone; the last commit."""
        last = self.parts.log.latest()
        if last is not None:
            # First what other loads left: a table that apply() defines is not missing any more.
            parts, applied = self.parts, self.parts.log.is_applied(last.number)
            with self._made_good({state.files_table for state in last.tables.values()}):
                restore(last, parts.log, parts.root, parts.catalog, parts.reach, applied=applied)
            if not applied:
                with self.phase("recover"):
                    self._apply(last, again=True)
        if not self.parts.sole and self._staged(last):
            last = self.supersede(last)
        self.clean(last)
        self._sweep()
        return last

    def supersede(self, last: Commit | None) -> Commit:
        """Let no other loader commit what it has made behind `last`; the commit that sees to it."""
        if self.parts.sole and last is not None:
            return last
        return self.commit(self.draft(last, "takeover"))

    def staging(self, number: int) -> Place:
        """The folder of what commit `number` is going to name, made."""
        folder = self.parts.root / STAGING / f"{number:08d}-{self.own}"
        folder.mkdir(parents=True, exist_ok=True)
        sync_folders([self.parts.root, folder.parent])
        return folder

    def commit(self, draft: Draft) -> Commit:
        """Commit, apply, clean up."""
        with self.phase("commit"):
            commit = draft.commit(self.now_ms())
            self.parts.reach("committing")
            self.parts.log.create(commit)
        _log(commit)
        self.parts.reach("committed")
        with self.phase("apply"):
            self._apply(commit, again=False)
        self.clean(commit)
        if commit.number % _TOO_MANY == 0:
            self._forget()
        return commit

    def clean(self, last: Commit | None) -> None:
        """Remove what was staged here, and what nobody can commit any more."""
        if self.parts.sole:
            remove(self.parts.root / STAGING)
            return
        # Told by its name alone: what another one stages meanwhile is for a later number.
        for folder in matching(self.parts.root / STAGING, "*"):
            if folder.name <= _done(last) or folder.name.endswith(self.own):
                remove(folder)

    def now_ms(self) -> int:
        """The time, in ms."""
        return int(self.parts.now() * 1000)

    def draft(self, last: Commit | None, kind: str) -> Draft:
        """What follows `last`, empty."""
        return Draft(self.parts.log, self.parts.root, last, kind)

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Tell a phase, and take its time."""
        if self._progress is not None:
            self._progress(name, None)
        began = time.monotonic()
        yield
        took = time.monotonic() - began
        self.seconds[name] = round(self.seconds.get(name, 0.0) + took, 3)

    def load(self, tasks: Sequence[Task], staging: Place, messages: int) -> list[Manifest]:
        """Read bins that hold so many messages, telling how far it is."""
        progress = self._progress
        tell = None if progress is None else lambda share: progress("read", share)
        with watching(staging, messages, tell):
            return list(self.parts.jobs.load(tasks))

    def _staged(self, last: Commit | None) -> list[Place]:
        """What is staged for commits that are still to come."""
        return [p for p in matching(self.parts.root / STAGING, "*") if p.name > _done(last)]

    def _apply(self, commit: Commit, *, again: bool) -> None:
        parts = self.parts
        changed = {s.files_table for s in commit.tables.values() if s.changed_by(commit.number)}
        with self._made_good(changed | {moved.table for moved in commit.relocations}):
            apply(
                commit,
                parts.log,
                parts.root,
                parts.catalog,
                parts.publish,
                parts.reach,
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
            if not self.parts.sole:
                with suppress(OSError, HeadworksError):
                    log = self.parts.log
                    log.note_restoring(log.restoring().union(tables))
            raise

    def _forget(self) -> None:
        try:
            self.parts.log.forget(KEPT)
        except CorruptError as error:  # no reason to stop: what is loaded is loaded
            _LOG.warning("no old commits are removed: %s", error.message)

    def _sweep(self) -> None:
        due = self.now_ms() - self.parts.grace * 1000
        for path, record in self.parts.log.retired().items():
            if record["since_ms"] <= due:
                self._remove(record)
                self.parts.reach("removing")
                path.unlink()

    def _remove(self, record: Mapping[str, Sequence[str]]) -> None:
        for table in record["tables"]:
            self.parts.catalog.drop_table(table)
            remove(self.parts.root / table)
        for folder in record["folders"]:
            path = self.parts.root / folder
            remove(path)
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
