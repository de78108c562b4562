"""The tables and views of the metastore, as the state after a commit defines them.

Rule: defining one again changes nothing, so the work after a commit may do so at any time.
"""

from __future__ import annotations

import logging

from hadoop_loader._commit.catalog import Catalog
from hadoop_loader._commit.commit_log import CommitLog
from hadoop_loader._commit.commit_record import TableState
from hadoop_loader._commit.table_history import projections_of
from hadoop_loader._decode.quarantine import QUARANTINE_COLUMNS, QUARANTINE_TABLE
from hadoop_loader._storage.filesystem import AnyPath
from hadoop_loader._tables.columns import (
    FILE_COLUMNS,
    PARTITION_TIME,
    ROW_COUNT,
    StructField,
    quoted,
)
from hadoop_loader._tables.old_rows import file_columns
from hadoop_loader._tables.sensitive import (
    MASKED_BY,
    commented,
    known_paths,
    masked_query,
    sensitive_columns,
    sensitive_property,
)
from hadoop_loader._tables.views import view_columns, view_query
from headworks.errors import HeadworksError
from headworks.schema import Record, Schema, governance_of

_LOG = logging.getLogger(__name__)


def define_table(state: TableState, log: CommitLog, root: AnyPath, catalog: Catalog) -> None:
    """Define a topic's table over files, with all columns that its files have."""
    history = projections_of(state, log)
    paths = known_paths(history, state.sensitive)
    marks = sensitive_columns(history, paths)
    columns = (*commented(file_columns(history), marks), *FILE_COLUMNS)
    location = root / state.files_table
    location.mkdir(exist_ok=True)
    catalog.put_table(
        state.files_table,
        columns,
        location,
        _schema_doc(history[-1].schema),
        _properties(state, history[-1].schema) | sensitive_property(marks) | _of_files(state),
    )


def define_view(state: TableState, log: CommitLog, catalog: Catalog) -> None:
    """Define a topic's view, and its masked view if there is to be one."""
    history = projections_of(state, log)
    source = catalog.source_of(state.files_table)
    paths = known_paths(history, state.sensitive)
    marks = sensitive_columns(history, paths)
    catalog.put_view(
        state.table,
        commented(view_columns(history), marks),
        view_query(source, history),
        _schema_doc(history[-1].schema),
        _properties(state, history[-1].schema) | sensitive_property(marks),
    )
    define_masked_view(state, log, catalog)


def lacks_masked_view(state: TableState, catalog: Catalog) -> bool:
    """Return whether a topic lacks its masked view, or has one of earlier columns."""
    return catalog.masked_view(state.table) not in (None, _defined_by(state, catalog))


def define_masked_view(state: TableState, log: CommitLog, catalog: Catalog) -> None:
    """Define a topic's masked view over its view, if the setting wants one that is not there.

    One that cannot be defined is dropped, since an old one may show what is sensitive now. The
    table does not wait for it: each run names the problem, and tries again.
    """
    if not lacks_masked_view(state, catalog):
        return
    if not state.marked:  # by an earlier release; the next commit marks it
        catalog.drop_masked_view(state.table)
        return
    try:
        _put_masked_view(state, log, catalog)
    except HeadworksError as error:
        catalog.drop_masked_view(state.table)
        _LOG.error("table %s has no masked view: %s", state.table, error)
    except Exception:
        catalog.drop_masked_view(state.table)
        raise


def _put_masked_view(state: TableState, log: CommitLog, catalog: Catalog) -> None:
    history = projections_of(state, log)
    paths = known_paths(history, state.sensitive)
    marks = sensitive_columns(history, paths)
    columns = commented(view_columns(history), marks)
    names = [c.name for c in columns]
    query = masked_query(catalog.view_of(state.table), names, history[-1].schema, paths)
    catalog.check_masked_query(query)
    catalog.put_masked_view(
        state.table,
        columns,
        query,
        _schema_doc(history[-1].schema),
        _properties(state, history[-1].schema)
        | sensitive_property(marks)
        | {MASKED_BY: _defined_by(state, catalog)},
    )


def define_quarantine(root: AnyPath, catalog: Catalog) -> None:
    """Define the quarantine: its table over files, and its view."""
    location = root / QUARANTINE_TABLE
    location.mkdir(exist_ok=True)
    comment = "Messages that could not become rows, with the reason."
    catalog.put_table(QUARANTINE_TABLE, QUARANTINE_COLUMNS, location, comment, {})
    names = [f.name for f in QUARANTINE_COLUMNS] + ["datepartition"]
    day = StructField("datepartition", QUARANTINE_COLUMNS[0].type, "day of the record, UTC")
    query = f"SELECT {', '.join(map(quoted, names))} FROM {catalog.source_of(QUARANTINE_TABLE)}"
    catalog.put_view(QUARANTINE_TABLE, (*QUARANTINE_COLUMNS, day), query, comment, {})


def define_statistics(state: TableState, catalog: Catalog) -> None:
    """Tell the metastore how large a topic's table is, so that engines plan joins well."""
    catalog.set_properties(state.files_table, _of_files(state))


def _of_files(state: TableState) -> dict[str, str]:
    """Return the properties that only the table over files has."""
    column = state.partition_time.partition(" ")[0]
    return _statistics(state) | ({PARTITION_TIME: column} if column else {})


def _statistics(state: TableState) -> dict[str, str]:
    """Return the table's statistics as properties, by Hive's names, which Spark reads too."""
    if not state.statistics:
        return {}
    _, rows, size = state.statistics
    return {ROW_COUNT: str(rows), "totalSize": str(size)}


def _properties(state: TableState, schema: Schema) -> dict[str, str]:
    _, version, schema_id, key = state.projections[-1]
    governed: dict[str, str | None] = {}
    if isinstance(schema, Record):
        found = governance_of(schema)
        time = None if found.event_time is None else ".".join(found.event_time)
        domain = schema.name.rpartition(".")[0] or None
        governed = {"owner": found.owner, "event_time": time, "domain": domain}
    return {
        **{f"headworks.{name}": text for name, text in governed.items() if text is not None},
        "headworks.topic": state.subject.removesuffix("-value"),
        "headworks.subject": state.subject,
        "headworks.schema.version": str(version),
        "headworks.schema.id": str(schema_id),
        "headworks.schema.sha256": str(key),
    }


def _defined_by(state: TableState, catalog: Catalog) -> str:
    return f"commit {state.projections[-1][0]} over {catalog.view_of(state.table)}"


def _schema_doc(schema: Schema) -> str | None:
    return schema.doc if isinstance(schema, Record) else None
