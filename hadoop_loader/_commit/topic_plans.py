"""Which topics a load takes, and with which schemas.

Rules: a topic without a subject is ungoverned: it is reported and not loaded. A topic is skipped,
by name and with its offsets, if no table can follow its latest schema, or if this loader may not
read its schemas. Other topics are loaded.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

from hadoop_loader._commit.commit_log import CommitLog
from hadoop_loader._commit.commit_record import SEVERAL_TIMES, Commit, TableState
from hadoop_loader._commit.policy import Policy
from hadoop_loader._commit.registry_subjects import SchemaLookup, require_versions
from hadoop_loader._commit.report import SkippedTopic
from hadoop_loader._commit.table_history import (
    event_time_column,
    field_ids_after,
    new_field_ids,
    parsed,
    sensitive_after,
)
from hadoop_loader._commit.text_store import fingerprint
from hadoop_loader._decode.quarantine import QUARANTINE_TABLE
from hadoop_loader._tables.columns import MARKS_TABLE, StructField, ddl, table_name
from hadoop_loader._tables.hive_catalog import MAX_VIEW_CHARACTERS, SELF_TEST_TABLE
from hadoop_loader._tables.old_rows import SchemaProjection, file_columns
from hadoop_loader._tables.views import view_query
from hadoop_loader._tasks.load_task import TopicPlan, WriterSchema
from headworks.compatibility._columns import name_problem, type_problem
from headworks.errors import (
    HeadworksError,
    IncompatibleError,
    RefusedError,
    SchemaError,
    UsageError,
)
from headworks.schema import Record, governance_of, subject_of

# Names that no topic's table may have: `_headworks` is the folder of the commit log.
_RESERVED_TABLES = (QUARANTINE_TABLE, MARKS_TABLE, SELF_TEST_TABLE, "_headworks")
_MAX_CACHED_HISTORIES = 10_000


@dataclass(frozen=True, slots=True)
class TopicPlans:
    """The topics to load, the ungoverned ones, and the skipped ones."""

    plans: dict[str, TopicPlan]  # by topic
    ungoverned: tuple[str, ...]  # topics without a schema
    refused: tuple[SkippedTopic, ...]
    behind: tuple[str, ...] = ()  # the refused ones whose tables a rebuild may bring to the schema


class NeedsRebuildError(IncompatibleError):
    """A table cannot follow its topic's latest schema in place."""


def plan_topics(
    topics: Iterable[str],
    versions: Callable[[Collection[str]], Mapping[str, SchemaLookup]],
    last: Commit | None,
    log: CommitLog,
    policy: Policy,
    *,
    embedded: bool = False,
) -> TopicPlans:
    """Look up every topic's schemas, and check that tables can follow them.

    `embedded`: the tables are in the embedded metastore, which stores shorter texts than others.
    Raises the registry's refusal if this loader may read none of them.
    """
    names = sorted(topics)
    lookups = versions(names)
    if lookups and all(isinstance(found, RefusedError) for found in lookups.values()):
        require_versions(names[0], lookups)
    ungoverned = tuple(name for name in names if not lookups[name])
    known = last.tables if last else {}
    taken = {name: topic for topic, s in known.items() for name in (s.table, s.files_table)}
    taken |= dict.fromkeys(_RESERVED_TABLES, "(the loader's own)")
    plans, refused, behind = {}, [], []
    for topic in names:
        if not lookups[topic]:
            continue
        table = table_name(topic)
        before = last.tables.get(topic) if last else None
        try:
            writers = require_versions(topic, lookups)
            plan = TopicPlan(
                topic,
                before.files_table if before else table,
                subject_of(topic),
                writers[-1],
                writers,
                policy.hourly(before),
                life=before.earlier_lives + 1 if before else 1,
                sensitive=sensitive_after(before, writers, log),
            )
            if taken.setdefault(table, topic) != topic:
                raise UsageError(
                    f"topics {taken[table]} and {topic} would both be table {table}",
                    fix="rename one of the topics",
                )
            _check(plan, before, log, embedded=embedded)
            ids = field_ids_after(before, writers[-1].text, log)  # of a schema that has passed
        except HeadworksError as error:
            refused.append(SkippedTopic(topic, str(error)))
            if isinstance(error, NeedsRebuildError):
                behind.append(topic)
        else:
            plans[topic] = replace(plan, field_ids=ids)
    return TopicPlans(plans, ungoverned, tuple(refused), tuple(behind))


def check_new_tables(
    latest: Mapping[str, WriterSchema], *, last: Commit | None = None, embedded: bool = False
) -> None:
    """Check the latest schemas of topics without a table, so that `plan_topics` finds it done.

    It raises nothing: `plan_topics` checks again what failed, and reports it.
    """
    for topic, writer in latest.items():
        if last is None or topic not in last.tables:
            history = (0, writer.version, writer.text)
            with suppress(HeadworksError):
                _check_history(topic, (history,), changed=True, embedded=embedded)
                new_field_ids(writer.text)  # while the schema is still parsed


def next_state(plan: TopicPlan, before: TableState | None, load: int, size: float) -> TableState:
    """Return the table's state after commit `load`; a new schema or mark adds a projection."""
    known = _known_state(plan, before)
    return replace(
        known,
        projections=_next_projections(plan, known, load),
        record_bytes=round(size, 1),
        hourly=plan.hourly,
        field_ids=fingerprint(plan.field_ids.text),
        earlier_lives=plan.life - 1,
        sensitive=[[*path] for path in plan.sensitive],
        marked=True,
        partition_time=_partition_time(plan, before, fingerprint(plan.latest.text)),
    )


def _known_state(plan: TopicPlan, before: TableState | None) -> TableState:
    return before or TableState(table_name(plan.topic), plan.subject, [])


def _next_projections(plan: TopicPlan, known: TableState, load: int) -> list[list[Any]]:
    key = fingerprint(plan.latest.text)
    latest = known.projections[-1] if known.projections else [0, 0, 0, ""]
    # A table of an earlier release is defined again, to have its files in the present form.
    # One whose marks are others has other comments, and another masked view.
    sensitive = [[*path] for path in plan.sensitive]
    defined = known.field_ids and known.marked and known.sensitive == sensitive
    if (latest[1], latest[3]) == (plan.latest.version, key) and defined:
        return list(known.projections)
    return [*known.projections, [load, plan.latest.version, plan.latest.schema_id, key]]


def _partition_time(plan: TopicPlan, before: TableState | None, key: str) -> str:
    """Return the column from whose times the partitions of all rows come, or SEVERAL_TIMES.

    Rows of an earlier event time keep their partitions. The table of an earlier release has such a
    column if no version of its subject is missing, and all have the same event time.
    """
    known = before.partition_time if before else ""
    if before is not None and known and before.projections[-1][3] == key:
        return known
    time = event_time_column(plan.latest.text)
    if before is None or known == time:
        return time
    if known or plan.latest.version != len(plan.writers):
        return SEVERAL_TIMES
    keys = {fingerprint(writer.text) for writer in plan.writers}
    try:
        times = {event_time_column(writer.text) for writer in plan.writers}
    except SchemaError:  # of an old version, which may never have had rows
        return SEVERAL_TIMES
    all_known = keys >= {key for *_, key in before.projections}
    return time if all_known and times == {time} else SEVERAL_TIMES


def store_texts(plan: TopicPlan, log: CommitLog) -> None:
    """Store the texts that the state after a commit names."""
    log.schemas.put(plan.latest.text)
    log.field_ids.put(plan.field_ids.text)


def schema_changed(plan: TopicPlan, before: TableState | None) -> bool:
    """Return whether the topic's latest schema, or what is sensitive, differs from the table's."""
    return bool(_next_projections(plan, _known_state(plan, before), 0)[-1][0] == 0)


def _check(plan: TopicPlan, before: TableState | None, log: CommitLog, *, embedded: bool) -> None:
    """Raise the error for a table that cannot follow the topic's latest schema."""
    projections = before.projections if before else []
    history = tuple((load, version, log.schemas.get(key)) for load, version, _, key in projections)
    now = (0, plan.latest.version, plan.latest.text)
    changed = schema_changed(plan, before)
    _check_history(plan.topic, (*history, now), changed=changed, embedded=embedded)


@lru_cache(maxsize=_MAX_CACHED_HISTORIES)
def _check_history(
    topic: str, history: tuple[tuple[int, int, str], ...], *, changed: bool, embedded: bool
) -> None:
    """Raise the error if the last of these (load, version, text) cannot follow the others.

    The question is nearly always the same from load to load, so verdicts are cached. Refusals are
    not.
    """
    projections = [SchemaProjection(load, at, parsed(text)) for load, at, text in history]
    if isinstance(latest := projections[-1].schema, Record):
        governance_of(latest)
    try:
        columns = file_columns(projections)
    except IncompatibleError as error:
        raise NeedsRebuildError(
            error.message,
            fix=f"`headworks load rebuild {topic}` rewrites the table, if Avro resolves "
            "the change; or add a field of the new type beside the old one. Registering under the "
            "policy `warehouse` refuses such a change beforehand",
        ) from None
    if changed:
        # It raises what no view can show of the rows there are.
        query = view_query("", projections, columns)
        check_metastore_limits(columns, query, embedded=embedded)


def check_metastore_limits(columns: Sequence[StructField], view: str, *, embedded: bool) -> None:
    """Raise the error for columns or a view that the metastore cannot store."""
    fix = "register a version with shorter names or fewer columns. Registering under the policy "
    fix += "`warehouse` refuses such columns beforehand (HW207)"
    for column in columns:
        problem = name_problem(column.name)
        if problem is None and embedded:
            problem = type_problem(len(ddl(column.type).replace("`", "")))
        if problem is not None:
            raise UsageError(f"{problem} (column {column.name[:40]})", fix=fix)
    if embedded and len(view) > MAX_VIEW_CHARACTERS:
        raise UsageError(
            f"the view would have a text of {len(view):,} characters, and the embedded metastore "
            f"takes {MAX_VIEW_CHARACTERS:,}",
            fix="use a metastore of its own (`--metastore`), which stores longer texts; or keep "
            "the schema to fewer columns; after many versions, `headworks load rebuild` shortens "
            "the view",
        )
