"""Publishes each commit to Iceberg: the step after it, which can be repeated at any time.

Rules:

- A snapshot names its commit. A table whose snapshot has the commit is published already.
- If exactly the commits up to the one before are published, the record says what changed. Else the
  files of the table are listed, and compared with those of the snapshot.
- A table that fails holds up no other one, and no load. It is tried again at every run.
- A held table is published when its part of the commit is applied.
- The quarantine is a table like the topics': it is published once it has files, and stays if
  retention removes them all.
- A snapshot that another tool made is given up, with its table: the files are the loader's.
- Replaced files are removed when no snapshot uses them: `release` first expires the older ones.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Collection, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, Protocol

from hadoop_loader._commit.commit_builder import default_partition_folder
from hadoop_loader._commit.commit_log import CommitLog
from hadoop_loader._commit.commit_record import Commit, TableState, checksum
from hadoop_loader._commit.roll_forward import tables_of
from hadoop_loader._commit.table_failures import TableError
from hadoop_loader._commit.table_history import field_ids_of, projections_of
from hadoop_loader._decode.quarantine import QUARANTINE_COLUMNS, QUARANTINE_TABLE
from hadoop_loader._iceberg.publication import Publication
from hadoop_loader._iceberg.table_change import (
    COMMIT_PROPERTY,
    PublishedFile,
    PublishedTable,
    TableChange,
)
from hadoop_loader._iceberg.table_schema import (
    NeedsRewriteError,
    TableSchema,
    fixed_schema,
    table_schema,
)
from hadoop_loader._storage.failpoints import StepHook
from hadoop_loader._storage.filesystem import AnyPath, file_size, hadoop_uri, sorted_glob
from headworks.errors import HeadworksError

NOT_PUBLISHED = ""  # in place of a commit: the table must be published again
PUBLICATION_FILE = "iceberg.json"
_THREADS = 4  # a table waits for the catalog, and for footers
_LOG = logging.getLogger(__name__)


class Tables(Protocol):
    """The tables of an Iceberg catalog; `java_tables` has the real ones."""

    @property
    def creates_defaults(self) -> bool:
        """Whether a new table's format has defaults."""
        ...

    def exists(self, table: str) -> bool:
        """Return whether the catalog has a table."""
        ...

    def find(self, table: str) -> PublishedTable | None:
        """Return a table as the catalog has it, or None."""
        ...

    def drop(self, table: str) -> None:
        """Drop a table, if it exists; its data files stay."""
        ...

    def change(self, change: TableChange) -> None:
        """Make the snapshot of a change, and the table if there is none."""
        ...

    def expire(self, table: str, number: int) -> bool:
        """Expire the snapshots of commits before `number`; False if the current one is of these."""
        ...


@dataclass(frozen=True, slots=True)
class _Source:
    """The table that an Iceberg table is made from."""

    topic: str  # or the name of the quarantine
    table: str  # its name in the catalog
    files: str  # the table over the files
    state: TableState | None  # of a topic; None: the quarantine


@dataclass(slots=True)
class SnapshotPublisher:
    """Publishes commits to the tables of a catalog."""

    url: str  # of the catalog
    connect: Callable[[], Tables]  # connects to it; raises if it does not answer
    log: CommitLog
    root: AnyPath  # the folder of the warehouse
    state: AnyPath  # the folder of the commit log
    on_step: StepHook
    table_error: TableError  # the error of one table for an exception, or None
    problems: dict[str, str] = field(default_factory=dict)  # by topic
    outdated: set[str] = field(default_factory=set)  # topics whose files must be rewritten first
    _tables: Tables | None = None

    def publish(self, commit: Commit) -> None:
        """Publish everything up to `commit`, table by table."""
        before = self._publication()
        held = {one.table for one in self.log.held.entries()}
        every = self._sources(commit, before)
        states = {one.table: one for one in every if one.files not in held}
        next_one = before.number == commit.number - 1
        touched = tables_of(commit) if next_one else set()
        due = {
            name: one
            for name, one in states.items()
            if not before.tables.get(name)
            or before.number < commit.number - 1
            or one.files in touched
        }
        gone = before.tables.keys() - {one.table for one in every}
        if not due and not gone and before.number == commit.number and not held:
            return
        self.problems.clear()
        self.outdated.clear()
        own = commit_id(commit)  # once: it takes the whole commit's JSON
        published = {t: known for t, known in before.tables.items() if t in states}
        try:
            tables = self._connected()
            with ThreadPoolExecutor(_THREADS) as pool:
                work = [
                    pool.submit(
                        self._publish_one,
                        tables,
                        commit,
                        own,
                        one,
                        published.get(name) if next_one else None,
                    )
                    for name, one in sorted(due.items())
                ]
                found = dict(zip(sorted(due), [one.result() for one in work], strict=True))
            for name in gone:
                tables.drop(name)
        except Exception as error:
            self._catalog_failed(error, due)
            found = dict.fromkeys(due)
            published |= {name: before.tables[name] for name in gone}
        for name, known in found.items():
            published[name] = known or NOT_PUBLISHED
        self.on_step("published")
        Publication(self.url, commit.number, published).write(self.state / PUBLICATION_FILE)

    def release(self, commit: Commit, tables: Collection[str], number: int) -> bool:
        """Expire the snapshots that use files replaced by commit `number`; see `Snapshots`."""
        names = {
            s.table
            for s in self._sources(commit, self._publication())
            for one in tables
            if one in (s.table, s.files) or one.startswith(f"{s.table}__")
        }
        try:
            return all(self._connected().expire(name, number) for name in sorted(names))
        except Exception as error:
            if self._reason(error) is None:
                raise
            return False

    def _sources(self, commit: Commit, before: Publication) -> list[_Source]:
        """Return the tables of all topics, and the quarantine if it has or had files."""
        sources = [
            _Source(topic, s.table, s.files_table, s) for topic, s in sorted(commit.tables.items())
        ]
        if QUARANTINE_TABLE in before.tables or any((self.root / QUARANTINE_TABLE).glob("*")):
            sources.append(_Source(QUARANTINE_TABLE, QUARANTINE_TABLE, QUARANTINE_TABLE, None))
        return sources

    def _publish_one(
        self, tables: Tables, commit: Commit, own: str, source: _Source, known: str | None
    ) -> str | None:
        """Publish one table; return the commit of its snapshot, or None if it must be repeated.

        `own`: the id of `commit`. `known`: that of the table's snapshot, if it is known.
        """
        try:
            is_new = not known and not tables.exists(source.table)
            found = None if is_new else tables.find(source.table)
            if found is not None and not found.snapshot:
                tables.drop(source.table)
                found = None
            if found is not None and found.snapshot == own:
                return own
            whole = found is None or found.snapshot != known or not known
            change = self._change(tables, commit, own, source, found, whole=whole)
            if change is None:
                return known
            self.on_step("publishing")
            tables.change(change)
            return own
        except NeedsRewriteError as error:
            self.outdated.add(source.topic)
            self.problems[source.topic] = str(error).replace("TOPIC", source.topic)
            return None  # a load rewrites the files, and publishes the table then
        except Exception as error:
            reason = self._reason(error)
            if reason is None:
                raise
            self.problems[source.topic] = reason
        _LOG.warning(
            "topic %s was not published to Iceberg: %s", source.topic, self.problems[source.topic]
        )
        return None

    def _change(
        self,
        tables: Tables,
        commit: Commit,
        own: str,
        source: _Source,
        found: PublishedTable | None,
        *,
        whole: bool,
    ) -> TableChange | None:
        """Return what changes in a table, or None if nothing does."""
        table = source.files
        new_columns = source.state is not None and source.state.changed_by(commit.number)
        whole = whole or bool(commit.retired_tables and new_columns)
        with_defaults = tables.creates_defaults if found is None else found.with_defaults
        declared = {} if found is None else found.declared
        schema = self._schema(source, declared, with_defaults=with_defaults)
        removed = [moved.retired for moved in commit.relocations if moved.table == table]
        removed += commit.dropped_days.get(table, {}).values()
        added = [
            PublishedFile(hadoop_uri(self.root / f.target), f.bytes, f.day)
            for f in commit.files
            if f.table == table
        ]
        changed = new_columns or table in commit.settled_tables
        if whole:
            added = self._all_files(commit, table)
        elif not added and not removed and not changed:
            return None
        return TableChange(
            source.table,
            schema,
            "replace" if commit.kind == "compact" and not whole else "overwrite",
            tuple(added),
            tuple(hadoop_uri(self.root / folder) for folder in removed),
            whole,
            {
                COMMIT_PROPERTY: own,
                "headworks.load": str(commit.number),
                "headworks.kind": commit.kind,
                "headworks.offsets": json.dumps(
                    commit.offsets.get(source.topic, {}), sort_keys=True
                ),
            },
            _properties(source),
        )

    def _schema(
        self, source: _Source, declared: Mapping[int, Any], *, with_defaults: bool
    ) -> TableSchema:
        if source.state is None:
            defaults = {"_topic_life": 1} if with_defaults else {}
            return fixed_schema(QUARANTINE_COLUMNS, "_timestamp", defaults)
        history, ids = projections_of(source.state, self.log), field_ids_of(source.state, self.log)
        paths = source.state.sensitive
        return table_schema(history, ids, declared, sensitive=paths, with_defaults=with_defaults)

    def _all_files(self, commit: Commit, table: str) -> list[PublishedFile]:
        """Return all files of a table by listing its partitions."""
        layout = self.log.layout(commit, table)
        found = (self.root / table).glob("datepartition=*")
        days = {path.name.partition("=")[2] for path in found} | layout.keys()
        return [
            PublishedFile(hadoop_uri(path), file_size(path), day)
            for day in sorted(days)
            for path in sorted_glob(
                self.root / (layout.get(day) or default_partition_folder(table, day)),
                "[!._]*.parquet",
            )
        ]

    def _publication(self) -> Publication:
        return Publication.read(self.state / PUBLICATION_FILE, self.url)

    def _connected(self) -> Tables:
        if self._tables is None:
            self._tables = self.connect()
        return self._tables

    def _catalog_failed(self, error: Exception, due: Mapping[str, _Source]) -> None:
        reason = self._reason(error)
        if reason is None:
            raise error
        _LOG.warning("nothing was published to the Iceberg catalog %s: %s", self.url, reason)
        self.problems.update({one.topic: reason for one in due.values()})

    def _reason(self, error: Exception) -> str | None:
        """Return why the catalog failed, or None if it is a failure of something else."""
        if isinstance(error, HeadworksError):
            return str(error)
        found = self.table_error(error)
        return None if found is None else found.message


def commit_id(commit: Commit) -> str:
    """Return the id of a commit in snapshots: the same number in a restored log is another one."""
    return f"{commit.number}-{checksum(commit)[:12]}"


def _properties(source: _Source) -> dict[str, str]:
    if source.state is None:
        return {}
    return {
        "headworks.topic": source.topic,
        "headworks.subject": source.state.subject,
        "headworks.schema.version": str(source.state.version),
    }
