"""An open warehouse: it loads, and it serves SQL, in one Spark session.

Rules: it holds the warehouse's lock from `open` to `close`. `close` stops everything that was
started, and so does an `open` that fails half-way.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Container, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hadoop_loader._config import WarehouseConfig
from headworks.errors import HeadworksError, UnreachableError, UsageError

if TYPE_CHECKING:
    from hadoop_loader._commit.commit_log import CommitLog
    from hadoop_loader._commit.report import CompactionReport, LoadReport, SkippedTopic
    from hadoop_loader._commit.transaction import LoaderContext, Progress
    from hadoop_loader._fetch.position import RewindPosition
    from hadoop_loader._iceberg.publisher import SnapshotPublisher
    from hadoop_loader._operations.drop import AcknowledgeReport, DropReport
    from hadoop_loader._operations.erase import EraseCondition, EraseReport
    from hadoop_loader._operations.move import MoveReport
    from hadoop_loader._storage.lock import WarehouseLock

_STATE_FOLDER = "_headworks"
_LOG = logging.getLogger(__name__)


class Warehouse:
    """An open warehouse. Call `open`, then `load` as often as you like, and `serve`."""

    def __init__(self, config: WarehouseConfig, spark: Any, *, owns_session: bool) -> None:
        self._config = config
        self._spark = spark  # a SparkSession
        self._owns_session = owns_session  # `close` stops it
        self._address: tuple[str, int] | None = None  # of HiveServer2, once it serves
        self._lock = _acquire(config)
        try:
            with self._exclusively():
                self._context = self._open_context()
        except BaseException:
            self._lock.release()
            raise

    @classmethod
    def open(cls, config: WarehouseConfig, *, spark: Any = None) -> Warehouse:
        """Open a warehouse, and start a Spark session unless `spark` is one.

        Raises UsageError if Java 17 is missing, another loader holds the warehouse, another process
        holds the metastore, or the folder cannot be written, or read by Spark.
        """
        from hadoop_loader._spark.session import (
            check_file_system_class,
            start_session,
            stop_session,
        )

        if spark is not None:
            check_file_system_class(spark, config.root)
            return cls(config, spark, owns_session=False)
        cls.check_free(config)  # before a JVM has started
        session = start_session(config)
        try:
            return cls(config, session, owns_session=True)
        except BaseException:
            stop_session(session)
            raise

    @staticmethod
    def check_free(config: WarehouseConfig) -> None:
        """Raise UsageError if another loader holds the warehouse, or it cannot be written."""
        _acquire(config).release()

    def load(self, progress: Progress | None = None) -> LoadReport:
        """Load everything that is new, in every topic; `progress` is called in each phase.

        Afterwards, compact the partitions that the load touched, if they have many small files.
        """
        from hadoop_loader._operations.compact import Compaction
        from hadoop_loader._operations.load import Load
        from hadoop_loader._operations.retention import TableRetention

        with self._exclusively():
            report = Load(self._context, progress).run()
            last = self._context.log.latest()
            if self._config.policy.compact and last is not None and last.number == report.number:
                done = Compaction(self._context, progress).run_after(last)
                report = replace(
                    report,
                    compacted=done if done.number else None,
                    refused=(*report.refused, *done.refused),
                )
            kept = TableRetention(self._context, progress).run_after()
            if kept.number:
                report = replace(report, removed=str(kept))
            report = replace(report, unpublished=self._publish_outdated(progress))
            report = replace(
                report, unmarked=self._mark_completeness({one.topic for one in report.leaderless})
            )
            if report.compacted or report.unmarked or report.unpublished:
                self._context.log.write_last_run(report.as_dict())
        return report

    def rewind(
        self, topic: str, to: RewindPosition, progress: Progress | None = None
    ) -> LoadReport:
        """Load a topic again from `to` up to its committed offsets, and replace its rows."""
        from hadoop_loader._operations.rewind import Rewind

        with self._exclusively():
            return Rewind(self._context, progress).run(topic, to)

    def requeue(self, topic: str, progress: Progress | None = None) -> LoadReport:
        """Decode a topic's quarantined messages again."""
        from hadoop_loader._operations.rewind import Requeue

        with self._exclusively():
            return Requeue(self._context, progress).run(topic)

    def rebuild(self, topic: str, progress: Progress | None = None) -> LoadReport:
        """Rewrite a topic's table in its latest schema."""
        from hadoop_loader._operations.rebuild import Rebuild

        with self._exclusively():
            return Rebuild(self._context, progress).run(topic)

    def compact(
        self,
        topic: str | None = None,
        progress: Progress | None = None,
        *,
        every: bool = False,
    ) -> CompactionReport:
        """Compact every partition that has two small files or more, of one topic or of all.

        `every`: also rewrite all files that are in an older schema, so that views become plain.
        """
        from hadoop_loader._operations.compact import Compaction

        with self._exclusively():
            return Compaction(self._context, progress, min_small_files=2, every=every).run(topic)

    def move(
        self,
        old: str,
        start: str | None = None,
        progress: Progress | None = None,
        *,
        groups: str | None = None,
    ) -> MoveReport:
        """Continue with this configuration's cluster, after one at the addresses `old`.

        `groups` is a regex: consumer groups with these whole names are moved too.
        """
        from hadoop_loader._fetch.kafka_log import KafkaLog
        from hadoop_loader._operations.move import Move
        from hadoop_loader._operations.move_groups import MovedGroups
        from headworks._kafka.client_properties import client_properties

        moved = None if groups is None else MovedGroups(old, self._config.bootstrap, groups)
        with self._exclusively():
            log = KafkaLog(client_properties(old))
            return Move(self._context, log, progress, groups=moved).run(start)

    def drop(
        self, topic: str, progress: Progress | None = None, *, reload: bool = False
    ) -> DropReport:
        """Drop a topic's table; `reload`: although the topic still exists."""
        from hadoop_loader._operations.drop import Drop

        with self._exclusively():
            return Drop(self._context, progress).run(topic, reload=reload)

    def erase(self, condition: EraseCondition, progress: Progress | None = None) -> EraseReport:
        """Erase the rows that a condition selects from every table that has its field."""
        from hadoop_loader._operations.erase import Erase

        with self._exclusively():
            return Erase(self._context, progress).run(condition)

    def acknowledge(self, topic: str, progress: Progress | None = None) -> AcknowledgeReport:
        """Give up what can never be done for a topic that is held or refused."""
        from hadoop_loader._operations.drop import Acknowledge

        with self._exclusively():
            return Acknowledge(self._context, progress).run(topic)

    def quarantined(self) -> list[str]:
        """Return the topics that have messages in quarantine."""
        last = self._context.log.latest()
        return [t for t, state in (last.tables if last else {}).items() if state.quarantined]

    def alive(self) -> bool:
        """Return whether the session works and the lock is still held."""
        from py4j.protocol import Py4JError

        try:
            self._lock.check()
            return not self._spark.sparkContext._jsc.sc().isStopped()
        except (Py4JError, OSError, AttributeError, UnreachableError):
            return False

    def serve(self, host: str = "127.0.0.1", port: int = 0) -> tuple[str, int]:
        """Serve HiveServer2 from this session, and return its address: always the same."""
        from hadoop_loader._spark.hiveserver2 import serve

        if self._address is None:
            self._address = serve(self._spark, host, port)
        return self._address

    def close(self) -> None:
        """Stop the server and the session, and release the lock."""
        from hadoop_loader._spark.session import stop_session

        try:
            if self._owns_session:
                stop_session(self._spark)
        finally:
            self._lock.release()

    def __enter__(self) -> Warehouse:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @contextmanager
    def _exclusively(self) -> Iterator[None]:
        """Check the lock, and raise what Spark or the disk throws as an error of ours."""
        from hadoop_loader._spark.errors import raising_session_errors

        metastore = self._config.metastore_uri or self._config.metastore
        with raising_session_errors(self._config.root, metastore):
            self._lock.check()
            yield

    def _mark_completeness(self, leaderless: Container[str]) -> str | None:
        """Mark how far the tables are complete, if an audit store is configured.

        Returns why it failed, or None: a load does not fail because its marks cannot be written.
        """
        from hadoop_loader._commit.table_failures import TableFailures
        from hadoop_loader._operations.completeness import (
            MARKS_FILE,
            CompletenessMarks,
            audit_lookup,
        )

        config = self._config
        commit = self._context.log.latest()
        if config.audit_store is None or commit is None:
            return None
        lookup = audit_lookup(config.audit_store, config.bootstrap, config.registry)
        file = config.root / _STATE_FOLDER / MARKS_FILE
        catalog = self._context.catalog
        failures = TableFailures(self._context.table_error, catalog.check, {})
        try:
            CompletenessMarks(file, catalog, lookup, failures=failures)(commit, leaderless)
            for table in failures.errors:
                failures.require(table)
        except HeadworksError as error:
            _LOG.warning("completeness marks were not updated: %s", error.message)
            return str(error)
        return None

    def _publish_outdated(self, progress: Progress | None) -> tuple[SkippedTopic, ...]:
        """Rewrite the old files that Iceberg cannot show; return the topics not published then."""
        from hadoop_loader._commit.report import SkippedTopic
        from hadoop_loader._operations.compact import Compaction

        snapshots = self._context.snapshots
        if snapshots is None:
            return ()
        if self._config.policy.compact:
            for topic in sorted(snapshots.outdated):
                Compaction(self._context, progress, every=True).run(topic)
        return tuple(SkippedTopic(*one) for one in sorted(snapshots.problems.items()))

    def _open_context(self) -> LoaderContext:
        from hadoop_loader._commit.commit_log import CommitLog
        from hadoop_loader._commit.registry_subjects import RegistrySubjects
        from hadoop_loader._commit.transaction import LoaderContext
        from hadoop_loader._fetch.kafka_log import KafkaLog
        from hadoop_loader._operations.audit_counts import CommitCountsPublisher
        from hadoop_loader._spark.errors import metastore_table_error
        from hadoop_loader._spark.jobs import SparkJobs
        from hadoop_loader._tables.hive_catalog import HiveCatalog
        from headworks._kafka.client_properties import client_properties
        from headworks.registry_client import RegistryClient

        config = self._config
        config.metastore.mkdir(parents=True, exist_ok=True)
        client = client_properties(config.bootstrap)
        registry = RegistryClient(config.registry)
        databases = config.files_database, config.database, config.masked_database
        catalog = HiveCatalog(self._spark, *databases, embedded=config.embedded)
        catalog.prepare(config.metastore)
        log = CommitLog(config.root / _STATE_FOLDER, self._lock.record_folder)
        cache = config.root / _STATE_FOLDER / "registry-versions"
        subjects = RegistrySubjects(registry, recursive_json=config.recursive_json, cache=cache)
        snapshots = None if config.iceberg is None else self._publisher(config.iceberg, log)
        return LoaderContext(
            root=config.root,
            log=log,
            broker=KafkaLog(client),
            versions=subjects.versions,
            prefetch_versions=subjects.prefetch,
            jobs=SparkJobs(self._spark, client),
            catalog=catalog,
            publish=CommitCountsPublisher(client, registry, str(config.root)),
            tasks=config.tasks or self._spark.sparkContext.defaultParallelism,
            policy=config.policy,
            on_step=self._on_step,
            fenced=self._lock.fenced,
            embedded=config.embedded,
            table_error=metastore_table_error,
            snapshots=snapshots,
        )

    def _publisher(self, url: str, log: CommitLog) -> SnapshotPublisher:
        """Return what publishes commits to Iceberg; UsageError if it cannot work here."""
        from hadoop_loader._iceberg.catalog_url import catalog_properties
        from hadoop_loader._iceberg.java_tables import IcebergTables, check_iceberg
        from hadoop_loader._iceberg.publisher import SnapshotPublisher
        from hadoop_loader._spark.errors import iceberg_error
        from hadoop_loader._storage.filesystem import hadoop_uri

        config, root = self._config, self._config.root
        location = f"{hadoop_uri(root)}/_iceberg"
        catalog_properties(url, location)
        check_iceberg(self._spark)
        return SnapshotPublisher(
            url,
            lambda: IcebergTables(self._spark, url, config.iceberg_namespace, location),
            log,
            root,
            root / _STATE_FOLDER,
            self._on_step,
            iceberg_error,
        )

    def _on_step(self, step: str) -> None:
        """Run the failpoint of a step, and check that this loader still holds the warehouse."""
        from hadoop_loader._storage.failpoints import failpoint

        failpoint(step)
        self._lock.check()


def _acquire(config: WarehouseConfig) -> WarehouseLock:
    """Return the lock of a warehouse; UsageError if it is taken or cannot be written."""
    from hadoop_loader._storage.lock import acquire_lock

    root = config.root
    try:
        root.mkdir(parents=True, exist_ok=True)
        if isinstance(root, Path):
            _check_access(config, root)
        return acquire_lock(root / _STATE_FOLDER)
    except FileExistsError:
        raise _not_writable(config, FileExistsError("it is not a folder")) from None
    except OSError as error:
        raise _not_writable(config, error) from None


def _check_access(config: WarehouseConfig, root: Path) -> None:
    if not os.access(root, os.W_OK):
        raise PermissionError("permission denied")
    _check_hard_links(config, root / _STATE_FOLDER / f".probe-{os.getpid()}")


def _check_hard_links(config: WarehouseConfig, file: Path) -> None:
    """Raise UsageError if hard links fail: a commit is one, and would fail after the whole load."""
    file.parent.mkdir(exist_ok=True)
    file.touch()
    link = file.with_suffix(".link")
    try:
        os.link(file, link)
    except OSError as error:
        raise UsageError(
            f"{config.root} cannot hold a warehouse: no hard link can be made there "
            f"({error.strerror or error}), and a commit is one",
            fix="give --warehouse a folder on a local disk, or on NFS or CephFS",
        ) from None
    finally:
        link.unlink(missing_ok=True)
        file.unlink(missing_ok=True)


def _not_writable(config: WarehouseConfig, error: OSError) -> HeadworksError:
    return UsageError(
        f"warehouse {config.root} cannot be written: {error.strerror or error}",
        fix="give --warehouse or --data-dir a folder that you may write to",
    )
