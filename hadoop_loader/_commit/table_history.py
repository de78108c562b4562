"""The schemas and field ids that a table has had, from the texts that commits name."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import lru_cache

from hadoop_loader._commit.commit_log import CommitLog
from hadoop_loader._commit.commit_record import TableState
from hadoop_loader._tables.field_ids import NO_FIELD_IDS, FieldIds, all_local, field_ids
from hadoop_loader._tables.old_rows import SchemaProjection
from hadoop_loader._tables.sensitive import known_paths, paths_of_versions
from hadoop_loader._tasks.latest_rows import TableHistory
from hadoop_loader._tasks.load_task import WriterSchema, event_time_path
from headworks.errors import SchemaError
from headworks.schema import Primitive, Record, Schema, parse
from headworks.schema._sensitive import Paths

_MAX_CACHED_PATHS = 10_000
_MAX_CACHED_NEW_TABLES = 2_000
_MAX_CACHED_SCHEMAS = 16  # a plan needs those of one topic at a time


@lru_cache(maxsize=_MAX_CACHED_SCHEMAS)
def parsed(text: str) -> Schema:
    """Return the schema of a text that a plan needs more than once."""
    return parse(text, strict=False)


def projections_of(state: TableState, log: CommitLog) -> list[SchemaProjection]:
    """Return a table's projections, with their schemas."""
    return [
        SchemaProjection(int(load), int(version), parse(log.schemas.get(key), strict=False))
        for load, version, _, key in state.projections
    ]


@lru_cache(maxsize=_MAX_CACHED_PATHS)
def event_time_column(text: str) -> str:
    """Return the column whose times are the event times of a schema, and its logical type.

    A rebuild reads old values in another logical type, and leaves rows in their partitions.
    """
    node = schema = parsed(text)
    path = event_time_path(schema)
    if path is None:
        return "_timestamp"
    for name in path:
        assert isinstance(node, Record)
        found = node.field(name)
        assert found is not None
        node = found.type
    assert isinstance(node, Primitive)
    assert node.logical is not None
    return f"{'.'.join(path)} {node.logical.name}"


def sensitive_of(
    state: TableState, log: CommitLog, versions: Iterable[WriterSchema] = ()
) -> list[list[str]]:
    """Return the sensitive paths of all schemas that a table has had, and of these versions."""
    paths = known_paths(projections_of(state, log), state.sensitive)
    return [[*path] for path in sorted(_with_versions(paths, _texts(versions)))]


def sensitive_after(
    before: TableState | None, versions: Sequence[WriterSchema], log: CommitLog
) -> tuple[tuple[str, ...], ...]:
    """Return the paths for the state of a table whose subject has these versions.

    They are those of `before` if its schemas and they already say all that the versions say.
    """
    texts = _texts(versions)
    if before is None and not any(map(_may_mark, texts)):
        return ()  # to look them up in the cache takes longer: their hash is not known yet
    stored: tuple[tuple[str, ...], ...] = ()
    history: tuple[str, ...] = ()
    if before is not None:
        stored = tuple(tuple(path) for path in before.sensitive)
        history = tuple(log.schemas.get(key) for *_, key in before.projections)
    known = _with_versions(frozenset(stored), history)
    found = _with_versions(known, texts)
    return tuple(sorted(found)) if before is None or found - known else stored


def _texts(versions: Iterable[WriterSchema]) -> tuple[str, ...]:
    """Return the schemas in the order in which they were registered."""
    return tuple(one.text for one in sorted(versions, key=lambda one: one.version))


@lru_cache(maxsize=_MAX_CACHED_PATHS)
def _with_versions(paths: Paths, texts: tuple[str, ...]) -> Paths:
    """Return the paths with those of these schemas; one that is none has no rows to hide."""
    if not paths and not any(map(_may_mark, texts)):
        return paths
    schemas = []
    for text in texts:
        try:
            schemas.append(parse(text, strict=False))
        except SchemaError:
            continue
    return paths_of_versions(schemas, paths)


def _may_mark(text: str) -> bool:
    """Return whether a schema may mark a field as sensitive; parsing it takes 500 times as long."""
    return "sensitive" in text or ("\\" in text and "\\u" in text)  # one character is quicker


def table_history(
    state: TableState, log: CommitLog, number: int, target: str | None = None
) -> TableHistory:
    """Return the schemas of a table's files, for commit `number`, which rewrites some of them.

    `target`: the schema that a rebuild writes all files in.
    """
    projections = tuple(
        (int(load), int(version), log.schemas.get(key))
        for load, version, _, key in state.projections
    )
    ids = field_ids_of(state, log) if target is None else rebuilt_field_ids(state, target, log)
    return TableHistory(projections, number, target, ids)


def field_ids_of(state: TableState, log: CommitLog) -> FieldIds:
    """Return the field ids of a table's latest schema."""
    if state.field_ids:
        return FieldIds.parse(log.field_ids.get(state.field_ids))
    found, old = NO_FIELD_IDS, None
    for _, _, _, key in state.projections:
        new = parse(log.schemas.get(key), strict=False)
        found, old = field_ids(found, old, new), new
    return replace(found, local=frozenset())  # its files are of a release that had all in UTC


def field_ids_after(before: TableState | None, latest: str, log: CommitLog) -> FieldIds:
    """Return the field ids of a topic's latest schema; `before`: its table, if it has one."""
    if before is None:
        return new_field_ids(latest)
    known = field_ids_of(before, log)
    text = log.schemas.get(before.projections[-1][3])
    if text == latest:
        return known
    return field_ids(known, parsed(text), parsed(latest))


@lru_cache(maxsize=_MAX_CACHED_NEW_TABLES)
def new_field_ids(text: str) -> FieldIds:
    """Return the field ids of a table that is made for a schema."""
    return field_ids(NO_FIELD_IDS, None, parsed(text))


def rebuilt_field_ids(before: TableState, latest: str, log: CommitLog) -> FieldIds:
    """Return the field ids of a table that is rebuilt in the topic's latest schema."""
    return all_local(field_ids_after(before, latest, log), parse(latest, strict=False))
