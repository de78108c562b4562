"""A transaction on a warehouse: every operation (load, rewind, rebuild, compact) is one of these.

    1 recover   Finish the last commit, and restore what the metastore lost. Remove old staging.
    2 plan      The operation reads the broker, the registry, and the last commit n.
    3 stage     Tasks write files to .staging/<n+1>-<writer id>, where no reader looks.
    4 commit    Create commits/<n+1>.json if it is absent. This is the only commit point.
    5 apply     Alter tables, replace views, rename files into place, and register partitions.
    6 publish   Publish the audit counts, then create commits/<n+1>.applied.
    7 clean     Remove the staging folder. Every 100 commits, expire old commit records.

Assumptions of each step, and what a death in it leaves:

    step     may assume                     a death leaves             repaired by
    1        the lock of the warehouse      what it found              the next step 1
    2        commit n is applied            nothing                    -
    3        n is the last commit           staged files               step 1 removes them
    4        staged files are durable       a record, or none          step 1 reads which
    5, 6     the record alone               a part of the changes      step 1 repeats 5 and 6
    7        the commit is applied          staging, old records       step 1, the next expiry

Rules:

- Before step 4, nothing outside the staging folder changes. After it, nothing can be lost: steps 5
  and 6 read the record alone, and repeating them changes nothing more (`roll_forward`).
- A loader whose lock does not fence (`fenced` is false) may have been outlived without noticing. It
  removes staged files only when their commit number is taken. If there are later ones, step 1 takes
  the next number with an empty commit, so that the other loader's create fails.
- An outlived loader can send one stale statement to the metastore. When a step fails, it records
  the tables it worked on, and the next transaction defines them again.
- A table that cannot be changed in step 5 is held: it keeps what it had, its files stay in staging,
  and its topic is not planned. Step 1 tries again in every transaction. All other tables go on
  (`roll_forward`, `held_tables`).
- Replaced files and tables are retired, not removed: a query that started earlier still reads them.
  Any transaction removes them RETIRED_GRACE_SECONDS after the commit that replaced them, and after
  the snapshots that use them have expired (`snapshots`).
- Snapshots are published after a commit is applied. One that fails is published by a later run.
"""

from __future__ import annotations

import logging
import time
import uuid
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Protocol

from hadoop_loader._commit.catalog import Catalog
from hadoop_loader._commit.commit_builder import CommitBuilder
from hadoop_loader._commit.commit_log import CommitLog
from hadoop_loader._commit.commit_record import Commit
from hadoop_loader._commit.policy import Policy
from hadoop_loader._commit.registry_subjects import Prefetch, SchemaLookup
from hadoop_loader._commit.report import SkippedTopic
from hadoop_loader._commit.roll_forward import PublishCounts, RollForward
from hadoop_loader._commit.snapshots import Snapshots
from hadoop_loader._commit.table_failures import TableError, TableFailures, table_error
from hadoop_loader._fetch.kafka_log import Log
from hadoop_loader._storage.failpoints import StepHook, failpoint
from hadoop_loader._storage.filesystem import AnyPath, remove_empty, remove_tree, sorted_glob
from hadoop_loader._storage.fsync import sync_folders
from hadoop_loader._tasks.load_task import LoadTask, TaskManifest
from hadoop_loader._tasks.progress import report_progress
from hadoop_loader._tasks.rewrite_task import RewriteResult, RewriteTask
from headworks.errors import CorruptError, HeadworksError

# Called when a phase starts (phase, None), and as it advances (phase, share done from 0 to 1).
Progress = Callable[[str, float | None], None]
STAGING = ".staging"
RETIRED_GRACE_SECONDS = 3600.0  # longer than the longest query is expected to take
KEPT_COMMITS = 1000  # records that stay for people to read; the loader needs only the last one
_EXPIRY_INTERVAL_COMMITS = 100
_LOG = logging.getLogger(__name__)


class Jobs(Protocol):
    """Runs tasks: Spark, or this process in tests."""

    def load(self, tasks: Sequence[LoadTask]) -> Sequence[TaskManifest]:
        """Run load tasks, and return the result of each."""
        ...

    def rewrite(self, rewrites: Sequence[RewriteTask]) -> Sequence[RewriteResult]:
        """Rewrite partitions, and return the result of each."""
        ...


@dataclass(frozen=True, slots=True)
class LoaderContext:
    """Everything that a transaction uses; tests replace some of it."""

    root: AnyPath  # the folder of the warehouse
    log: CommitLog  # the commit log in that folder
    broker: Log  # partitions, watermarks, and offsets
    versions: Callable[[Collection[str]], Mapping[str, SchemaLookup]]  # the registry's, by topic
    jobs: Jobs  # where tasks run
    catalog: Catalog  # the Hive metastore
    publish: PublishCounts  # sends a commit's audit counts
    tasks: int  # tasks of a load at most
    policy: Policy = field(default_factory=Policy)  # the operator's choices
    on_step: StepHook = failpoint  # called at each named step: failpoints, lock checks
    now: Callable[[], float] = time.time  # seconds since the epoch
    grace: float = RETIRED_GRACE_SECONDS  # seconds before retired files are removed
    fenced: bool = True  # no earlier holder of the lock can still commit
    embedded: bool = False  # the metastore is the embedded one
    table_error: TableError = table_error  # whether an exception is a failure of one table
    snapshots: Snapshots | None = None  # Iceberg, if it is configured
    # Starts to read these topics' versions, for `versions`.
    prefetch_versions: Prefetch = lambda _topics, _use_latest: None


class Transaction:
    """One transaction; see the module. `recover` comes first, `commit` at most a few times."""

    def __init__(self, context: LoaderContext, progress: Progress | None = None) -> None:
        self.context = context  # the warehouse, its log, and its catalog
        self.seconds: dict[str, float] = {}  # time spent in each phase so far
        self.writer_id = uuid.uuid4().hex[:8]  # names the folders that only this one writes
        self._progress = progress  # None: nobody watches
        # The tables that failed so far; they hold up no other one.
        self.failures = TableFailures(context.table_error, self._check, {})
        # The work after a commit, which each later transaction can finish.
        self._roll_forward = RollForward(
            context.log,
            context.root,
            context.catalog,
            context.publish,
            context.on_step,
            self.failures,
            self.now_ms,
            context.fenced,
        )

    # Step 1: recover

    def recover(self) -> Commit | None:
        """Finish what earlier transactions left, and return the last commit."""
        context = self.context
        last = context.log.latest()
        if last is not None:
            # The tables of older commits come first: `_apply` defines those of this one.
            applied = context.log.is_applied(last.number)
            with self._redefined_after_failure(s.files_table for s in last.tables.values()):
                self._roll_forward.restore(last, applied=applied)
            if not applied:
                with self.phase("recover"):
                    self._apply(last, retry=True)
            self._roll_forward.mask(last)
            if context.log.held.entries():
                with self.phase("recover"), self._redefined_after_failure(self.held):
                    self._roll_forward.apply_held(last)
        if not context.fenced and self._staged_after(last):
            last = self.fence_other_loaders(last)
        self.remove_staging(last)
        if last is not None:
            self._publish(last)
            self._remove_retired(last)
        return last

    def fence_other_loaders(self, last: Commit | None) -> Commit:
        """Ensure that no other loader can commit what it staged after `last`.

        Returns `last`, or the empty commit that took the next number.
        """
        if self.context.fenced and last is not None:
            return last
        return self.commit(self.new_commit(last, "takeover"))

    # Steps 2 and 3: plan and stage

    def new_commit(self, last: Commit | None, kind: str) -> CommitBuilder:
        """Return a builder of the commit after `last`, without changes so far."""
        return CommitBuilder(self.context.log, self.context.root, last, kind)

    def staging(self, number: int) -> AnyPath:
        """Create and return the staging folder for commit `number`."""
        folder = self.context.root / STAGING / f"{number:08d}-{self.writer_id}"
        folder.mkdir(parents=True, exist_ok=True)
        sync_folders([self.context.root, folder.parent])
        return folder

    def load(
        self, tasks: Sequence[LoadTask], staging: AnyPath, messages: int
    ) -> list[TaskManifest]:
        """Run load tasks that read `messages` in all, and report their progress."""
        progress = self._progress
        report = None if progress is None else lambda share: progress("read", share)
        with report_progress(staging, messages, report):
            return list(self.context.jobs.load(tasks))

    # Steps 4 to 7: commit, apply, publish, clean

    def commit(self, builder: CommitBuilder) -> Commit:
        """Create the commit record, apply it, and remove the staging folder.

        Raises UsageError if another loader took the number: then nothing has changed.
        """
        with self.phase("commit"):
            commit = builder.build(self.now_ms())
            self.context.on_step("committing")
            self.context.log.create(commit)
        _log_offsets(commit)
        self.context.on_step("committed")
        with self.phase("apply"):
            self._apply(commit, retry=False)
        self._publish(commit)
        self.remove_staging(commit)
        if commit.number % _EXPIRY_INTERVAL_COMMITS == 0:
            self._expire_commits()
        return commit

    def remove_staging(self, last: Commit | None) -> None:
        """Remove this transaction's staging, and what no loader can commit any more."""
        kept = self._held_staging(last)
        if self.context.fenced and not kept:
            remove_tree(self.context.root / STAGING)
            return
        # Names alone decide: another loader may be staging for a later number right now.
        for folder in sorted_glob(self.context.root / STAGING, "*"):
            own = self.context.fenced or folder.name.endswith(self.writer_id)
            if folder.name not in kept and (own or folder.name <= _upper_bound(last)):
                remove_tree(folder)

    def _held_staging(self, last: Commit | None) -> set[str]:
        """Return the staging folders with files of held tables."""
        held, log = self.context.log.held.entries(), self.context.log
        commits = {one.number: log.read(one.number) for one in held if last is not None}
        return {
            file.staged.split("/")[1]
            for one in held
            for file in commits[one.number].files
            if file.table == one.table and file.staged.startswith(f"{STAGING}/")
        }

    @property
    def held(self) -> set[str]:
        """The tables over files that are held."""
        return {one.table for one in self.context.log.held.entries()}

    def skipped_topics(self, last: Commit | None) -> list[SkippedTopic]:
        """Return the topics whose tables could not be changed, or the tables that have none."""
        topics = {s.files_table: t for t, s in last.tables.items()} if last else {}
        return [
            SkippedTopic(topics.get(table, table), str(self.failures.error_of(table)))
            for table in sorted(self.failures.errors)
        ]

    def _check(self) -> None:
        """Raise what concerns all tables: a lost lock, or a metastore that answers nobody."""
        self.context.on_step("failed")
        self.context.catalog.check()

    def _staged_after(self, last: Commit | None) -> list[AnyPath]:
        """Return the staging folders of commits after `last`."""
        folders = sorted_glob(self.context.root / STAGING, "*")
        return [folder for folder in folders if folder.name > _upper_bound(last)]

    def _apply(self, commit: Commit, *, retry: bool) -> None:
        """Run steps 5 and 6; `retry`: an earlier attempt may have done part of them."""
        changed = {s.files_table for s in commit.tables.values() if s.changed_by(commit.number)}
        if commit.dropped_days or commit.dropped_tables:  # before their files are removed
            self._publish(commit)
            if self.context.snapshots is not None:
                self.context.snapshots.release(commit, [*commit.dropped_days], commit.number)
        with self._redefined_after_failure(changed | {r.table for r in commit.relocations}):
            self._roll_forward.apply(commit, retry=retry)

    def _publish(self, commit: Commit) -> None:
        if self.context.snapshots is not None:
            with self.phase("publish"):
                self.context.snapshots.publish(commit)

    @contextmanager
    def _redefined_after_failure(self, tables: Iterable[str]) -> Iterator[None]:
        """If metastore statements fail half-way, have the next transaction define `tables` again.

        Without a fence, this loader may have been outlived: its last statement may have come after
        the statements of its successor.
        """
        try:
            yield
        except Exception:
            if not self.context.fenced:
                with suppress(OSError, HeadworksError):
                    log = self.context.log
                    log.set_tables_to_restore(log.tables_to_restore().union(tables))
            raise

    def _expire_commits(self) -> None:
        try:
            self.context.log.expire(KEPT_COMMITS)
        except CorruptError as error:  # the load itself is committed
            _LOG.warning("no old commits are removed: %s", error.message)

    def _remove_retired(self, last: Commit) -> None:
        due_ms = self.now_ms() - self.context.grace * 1000
        for retired in self.context.log.retired.batches():
            if retired.since_ms > due_ms:
                continue
            snapshots = self.context.snapshots
            if snapshots and not snapshots.release(last, retired.all_tables, retired.number):
                continue
            for table in retired.tables:
                self.context.catalog.drop_table(table)
                remove_tree(self.context.root / table)
            for folder in retired.folders:
                path = self.context.root / folder
                remove_tree(path)
                if path.parent.name.startswith("load-"):
                    remove_empty(path.parent)
            self.context.on_step("removing")
            retired.file.unlink()

    # Time and progress

    def now_ms(self) -> int:
        """Return the time in milliseconds since the epoch."""
        return int(self.context.now() * 1000)

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Report that a phase starts, and add its time to `seconds`."""
        if self._progress is not None:
            self._progress(name, None)
        started = time.monotonic()
        yield
        elapsed = time.monotonic() - started
        self.seconds[name] = round(self.seconds.get(name, 0.0) + elapsed, 3)


def _upper_bound(last: Commit | None) -> str:
    """Return a name after every staging folder up to `last`, and before all later ones."""
    return f"{last.number if last else 0:08d}~"


def _log_offsets(commit: Commit) -> None:
    """Log the offset range of each partition, so that an offset can be found in the log."""
    for topic, counts in commit.topics.items():
        for partition, (start, end) in counts.ranges.items():
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
        if counts.quarantined > 0 or counts.lost:
            _LOG.warning(
                "%s %d: %s has %d bad and %d lost messages",
                commit.kind,
                commit.number,
                topic,
                counts.quarantined,
                counts.lost,
                extra={"topic": topic, "quarantined": counts.quarantined, "lost": counts.lost},
            )
