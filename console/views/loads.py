"""The loader's work: its runs, the topics of one run, and the columns of a topic's table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from hadoop_loader._storage.filesystem import AnyPath
from hadoop_loader._tables.columns import (
    METADATA_COLUMNS,
    PARTITION_COLUMN,
    StructField,
    ddl,
    table_columns,
)
from headworks._console.sources.loads import LoadedTable, LoadRun, LoadsSnapshot, open_log
from headworks._console.sources.table_files import TableFiles, count_files
from headworks._console.views.paging import ListPage, ListQuery, list_page
from headworks._console.views.visibility import CanSee
from headworks.errors import HeadworksError
from headworks.schema import parse

_MAX_RUNS = 50


@dataclass(frozen=True, slots=True)
class LoadList:
    """The tables, and the newest runs; `lags` has the messages of a topic that are not loaded."""

    started: bool
    tables: ListPage[LoadedTable]
    lags: Mapping[str, int]
    runs: tuple[LoadRun, ...]
    run_count: int
    rows: int


@dataclass(frozen=True, slots=True)
class RunTopic:
    """One topic of one load; `ranges` are (partition, start, end), the end excluded."""

    topic: str
    table: str
    ranges: tuple[tuple[int, int, int], ...]
    rows: int
    bytes: int
    files: int
    quarantined: int
    lost: int
    first_event_ms: int | None
    last_event_ms: int | None


@dataclass(frozen=True, slots=True)
class RunPage:
    """One load."""

    run: LoadRun
    topics: tuple[RunTopic, ...]


@dataclass(frozen=True, slots=True)
class TableColumn:
    """A column of a table; `origin`: data, loader, or partition."""

    name: str
    type: str
    comment: str | None
    origin: str


@dataclass(frozen=True, slots=True)
class TableVersion:
    """The schema version of a table's rows from a load on."""

    load: int
    version: int
    schema_id: int


@dataclass(frozen=True, slots=True)
class TablePage:
    """A topic's table."""

    table: LoadedTable
    columns: tuple[TableColumn, ...]
    projections: tuple[TableVersion, ...]
    offsets: tuple[tuple[int, int], ...]
    problem: str | None
    lag: int | None
    files: TableFiles | None


def load_list(
    loads: LoadsSnapshot | None, lags: Mapping[str, int], can_see: CanSee, query: ListQuery
) -> LoadList:
    """Return the visible tables, and the newest runs of which every topic is visible."""
    tables = [one for one in (loads.by_topic.values() if loads else ()) if can_see.topic(one.topic)]
    part = list_page(
        tables,
        query,
        lambda row: f"{row.topic} {row.table}",
        (lambda row: (-row.rows, row.topic)) if query.sort == "rows" else None,
    )
    runs = [run for run in (loads.runs if loads else ()) if _sees_all(run, can_see)]
    return LoadList(
        bool(loads and loads.tables is not None),
        part,
        {row.topic: lags[row.topic] for row in part.rows if row.topic in lags},
        tuple(runs[:_MAX_RUNS]),
        len(runs),
        sum(table.rows for table in tables),
    )


def _sees_all(run: LoadRun, can_see: CanSee) -> bool:
    return all(can_see.topic(topic) for topic in run.topics)


def run_page(
    warehouse: AnyPath, loads: LoadsSnapshot | None, number: int, can_see: CanSee
) -> RunPage | None:
    """Return one load, or None if it does not exist or has an invisible topic."""
    run = next((one for one in (loads.runs if loads else ()) if one.number == number), None)
    log = open_log(warehouse)
    if run is None or log is None or not _sees_all(run, can_see):
        return None
    commit = log.read(number)
    topics = tuple(
        RunTopic(
            topic,
            commit.tables[topic].table if topic in commit.tables else "",
            tuple((int(p), start, end) for p, (start, end) in sorted(found.ranges.items())),
            found.rows,
            found.bytes,
            found.files,
            found.quarantined,
            found.lost + found.damaged,
            found.first_event,
            found.last_event,
        )
        for topic, found in sorted(commit.topics.items())
    )
    return RunPage(run, topics)


def table_page(
    warehouse: AnyPath, loads: LoadsSnapshot | None, topic: str, lag: int | None
) -> TablePage | None:
    """Return a topic's table with its columns, or None if the topic has no table."""
    table = loads.by_topic.get(topic) if loads else None
    log = open_log(warehouse)
    latest = log.latest() if log else None
    if table is None or log is None or latest is None:
        return None
    state = latest.tables[topic]
    problem = None
    data: Sequence[StructField] = ()
    try:
        data = table_columns(parse(log.schemas.get(str(state.projections[-1][3])), strict=False))
    except HeadworksError as error:
        problem = error.message
    columns = [TableColumn(c.name, ddl(c.type), c.comment, "data") for c in data]
    columns += [TableColumn(c.name, ddl(c.type), c.comment, "loader") for c in METADATA_COLUMNS]
    columns.append(TableColumn(PARTITION_COLUMN, "string", "day of the event, UTC", "partition"))
    return TablePage(
        table,
        tuple(columns),
        tuple(TableVersion(int(p[0]), int(p[1]), int(p[2])) for p in state.projections),
        tuple(sorted(latest.committed(topic).items())),
        problem,
        lag,
        count_files(warehouse, state.files_table),
    )
