"""The schemas and field ids that a table has had, from the texts that commits name."""

from __future__ import annotations

from hadoop_loader._commit.commit_log import CommitLog
from hadoop_loader._commit.commit_record import TableState
from hadoop_loader._tables.field_ids import NO_FIELD_IDS, FieldIds, field_ids
from hadoop_loader._tables.old_rows import SchemaProjection
from hadoop_loader._tables.sensitive import known_paths
from hadoop_loader._tasks.latest_rows import TableHistory
from headworks.schema import parse


def projections_of(state: TableState, log: CommitLog) -> list[SchemaProjection]:
    """Return a table's projections, with their schemas."""
    return [
        SchemaProjection(int(load), int(version), parse(log.schemas.get(key), strict=False))
        for load, version, _, key in state.projections
    ]


def sensitive_of(state: TableState, log: CommitLog) -> list[list[str]]:
    """Return the sensitive paths of all schemas that a table has had."""
    return [[*path] for path in sorted(known_paths(projections_of(state, log), state.sensitive))]


def table_history(
    state: TableState, log: CommitLog, number: int, target: str | None = None
) -> TableHistory:
    """Return the schemas of a table's files, for commit `number`, which rewrites some of them.

    `target`: the schema to write, if it is not the table's latest one.
    """
    projections = tuple(
        (int(load), int(version), log.schemas.get(key))
        for load, version, _, key in state.projections
    )
    ids = field_ids_of(state, log) if target is None else field_ids_after(state, target, log)
    return TableHistory(projections, number, target, ids)


def field_ids_of(state: TableState, log: CommitLog) -> FieldIds:
    """Return the field ids of a table's latest schema."""
    if state.field_ids:
        return FieldIds.parse(log.field_ids.get(state.field_ids))
    found, old = NO_FIELD_IDS, None
    for _, _, _, key in state.projections:
        new = parse(log.schemas.get(key), strict=False)
        found, old = field_ids(found, old, new), new
    return found


def field_ids_after(before: TableState | None, latest: str, log: CommitLog) -> FieldIds:
    """Return the field ids of a topic's latest schema; `before`: its table, if it has one."""
    if before is None:
        return field_ids(NO_FIELD_IDS, None, parse(latest, strict=False))
    known = field_ids_of(before, log)
    text = log.schemas.get(before.projections[-1][3])
    if text == latest:
        return known
    return field_ids(known, parse(text, strict=False), parse(latest, strict=False))
