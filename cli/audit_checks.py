"""`headworks audit wait|verify`: wait for complete data, and check files against the audit."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from typing import TYPE_CHECKING, Annotated

import typer

from headworks._cli.audit_store import AuditOptions
from headworks._cli.option_groups import expand_groups
from headworks._cli.options import WarehouseOption
from headworks._cli.output import Format, FormatOption, print_json, print_status, print_table
from headworks._cli.times import format_instant, parse_duration_ms, parse_instant
from headworks._settings import resolve
from headworks.errors import CorruptError, FindingsError, UsageError

if TYPE_CHECKING:
    from hadoop_loader._operations.row_differences import RowDifference
    from hadoop_loader._operations.verify import TableRows
    from hadoop_loader._storage.filesystem import AnyPath
    from headworks._audit.balance import Balance
    from headworks._audit.results import Completeness
    from headworks._audit.store import AuditStore

_POLL_SECONDS = 2.0
_SHOWN_CAUSES = 5  # in the error of `verify`


@expand_groups
def wait(
    source: AuditOptions,
    table: Annotated[str, typer.Argument(help="the table, or its topic")],
    until: Annotated[str, typer.Option(help="time up to which the table must be complete")],
    since: Annotated[
        str | None, typer.Option(help="time from which it must be complete (default: always)")
    ] = None,
    timeout: Annotated[
        str | None, typer.Option(help="give up after 30m, 2h; 0s: ask once (default: never)")
    ] = None,
    sla: Annotated[
        float, typer.Option(min=0, max=100, help="percent of a window that must have arrived")
    ] = 99.9,
    grace: Annotated[
        str, typer.Option(help="time that producers may take to report what they sent")
    ] = "1m",
    tier: Annotated[str, typer.Option(help="tier at which it must be complete")] = "hadoop",
    format: FormatOption = Format.TEXT,
) -> None:
    """Wait until a table is complete up to a time. Exit 1 if it is not when the timeout is over."""
    end = parse_instant(until, "--until")
    start = None if since is None else parse_instant(since, "--since")
    final_at = end + parse_duration_ms("--grace", grace)
    seconds = math.inf if timeout is None else parse_duration_ms("--timeout", timeout) / 1000
    deadline = time.monotonic() + seconds
    source = replace(source, bootstrap=source.servers, zookeeper=None)  # asks ZooKeeper once
    while True:
        with source.reconciled_store() as opened:
            found = _completeness(opened, table, start, end, tier, sla / 100)
            sums = _sums(opened, found, start, tier)
        early = time.time() * 1000 < final_at
        if found.waits_for is None and not early:
            break
        if time.monotonic() >= deadline:
            if format is Format.JSON:
                _answer(found, sums, format)
            raise FindingsError(_why_not(found, early, final_at))
        time.sleep(_POLL_SECONDS)
    _answer(found, sums, format)


def _sums(opened: AuditStore, found: Completeness, since: int | None, tier: str) -> Balance | None:
    """Return the states of the messages of the windows that are complete."""
    from headworks._audit import queries

    rows = queries.topic_sums(opened, tier, topic=found.topic, since=since, until=found.until)
    return rows[0] if rows else None


def _completeness(
    opened: AuditStore, table: str, since: int | None, until: int, tier: str, share: float
) -> Completeness:
    from headworks._audit import queries

    topic = _topic_of(table, queries.topics(opened))
    found = queries.complete_until(opened, topic, since=since, until=until, tier=tier, share=share)
    if not found.counted:
        raise UsageError(
            f"no producer counts topic {topic}, so nobody knows when it is complete",
            fix="send with the producer SDK, or wait for a topic that is sent with it",
        )
    return found


def _topic_of(table: str, topics: list[str]) -> str:
    from hadoop_loader._tables.columns import table_name

    found = [topic for topic in topics if table in (topic, table_name(topic))]
    if not found:
        raise UsageError(
            f"no tier has counted a topic of table {table!r}",
            fix="`headworks audit status` lists topics",
        )
    return found[0]


def _why_not(found: Completeness, early: bool, final_at: int) -> str:
    if found.waits_for is None:
        assert early
        return (
            f"{found.topic} may still grow: producers may report until {format_instant(final_at)}"
        )
    row = found.waits_for
    return (
        f"{found.topic} is complete up to {format_instant(found.until)} only: of the ten minutes "
        f"from there, {row.missing:,} of {row.attempted:,} messages are missing "
        f"({row.waiting:,} waiting, {row.lost:,} lost, {row.unresolved:,} unresolved)"
    )


def _answer(found: Completeness, sums: Balance | None, form: Format) -> None:
    never_sent = 0 if sums is None else sums.dropped + sums.failed
    if form is Format.JSON:
        print_json(
            {
                "topic": found.topic,
                "complete_until": format_instant(found.until),
                "dropped_or_failed": never_sent,
                "missing": 0 if found.waits_for is None else found.waits_for.missing,
            }
        )
    elif found.waits_for is None:
        print_status(f"{found.topic} is complete up to {format_instant(found.until)}")
        if never_sent:
            print_status(
                f"its producers dropped or gave up {never_sent:,} more messages, which no table "
                "will have: see `headworks audit status`"
            )


@expand_groups
def verify(
    source: AuditOptions,
    warehouse: WarehouseOption = None,
    read_files: Annotated[
        bool, typer.Option("--read-files", help="read all files, and check each page's checksum")
    ] = False,
    format: FormatOption = Format.TEXT,
) -> None:
    """Compare the tables' files, the commits, and the audit. Exit 1 if they differ.

    The audit's sums are also compared with a naive sum of the whole audit topic.
    """
    from hadoop_loader._operations.verify import count_rows
    from hadoop_loader._storage.filesystem import parse_path
    from headworks._audit import queries

    root = parse_path(resolve("warehouse", warehouse))
    try:
        tables = count_rows(root, read_files=read_files)
    except CorruptError as error:
        raise FindingsError(error.message, fix=error.fix) from None
    with source.reconciled_store() as opened:
        audited = {row.topic: row.accounted for row in queries.topic_sums(opened, "hadoop")}
        differing = _differing(opened, source.servers, source.registry_url)
        rows = [(found, audited.get(found.topic)) for found in tables]
        wrong = [found for found, n in rows if not _agrees(found, n)]
        differences = [one for found in wrong for one in _differences(opened, root, found)]
    if format is Format.JSON:
        print_json(
            {
                "tables": [
                    {**asdict(found), "in_audit": n, "agrees": _agrees(found, n)}
                    for found, n in rows
                ],
                "differences": [asdict(one) for one in differences],
                "sums_differing": [*differing],
            }
        )
    else:
        print_table(
            ["topic", "table", "in files", "in commits", "quarantined", "in the audit", ""],
            [
                [
                    found.topic,
                    found.table,
                    found.in_files,
                    found.in_commits,
                    found.quarantined,
                    "not counted" if n is None else n,
                    "ok" if _agrees(found, n) else "DIFFERENT",
                ]
                for found, n in rows
            ],
        )
    if wrong or differing:
        raise _not_as_it_should_be(len(wrong), differences, differing)


def _not_as_it_should_be(
    tables: int, differences: Sequence[RowDifference], sums: Mapping[str, str]
) -> FindingsError:
    """Return the error for tables and sums that differ, with the first causes."""
    causes = [*map(str, differences), *sums.values()]
    more = f"; and {len(causes) - _SHOWN_CAUSES:,} more" if causes[_SHOWN_CAUSES:] else ""
    return FindingsError(
        f"{tables} tables and {len(sums)} sums of the audit are not what they should be: "
        f"{'; '.join(causes[:_SHOWN_CAUSES])}{more}",
        fix="if a load is under way, verify again when it has ended. Restore files from a backup "
        "(docs/backup.md), or read messages again: `headworks load rewind`",
    )


def _agrees(found: TableRows, audited: int | None) -> bool:
    return found.in_files == found.in_commits and audited in (None, found.counted)


def _differences(opened: AuditStore, root: AnyPath, found: TableRows) -> list[RowDifference]:
    """Return where a table differs from the commits: its files, and its counts in the audit."""
    from hadoop_loader._operations.row_differences import file_differences, window_differences
    from headworks._audit import queries

    windows = {
        row.window_start: row.accounted
        for row in queries.balances(opened, "hadoop", found.topic)
        if row.window_start is not None
    }
    of_audit = window_differences(root, found, windows) if windows else []
    return [*file_differences(root, found), *of_audit]


def _differing(opened: AuditStore, bootstrap: str, registry: str) -> dict[str, str]:
    """Return the topics whose sums in the store differ from a naive sum of the audit topic.

    The values say where, first. The result is empty if the beginning of the audit topic has been
    removed.
    """
    from headworks._audit import queries
    from headworks._audit.reader import read_whole

    ledger = read_whole(bootstrap, registry)
    if ledger is None:
        print_status("the beginning of the audit topic is gone: its sums are not added up again")
        return {}
    differing: dict[str, str] = {}
    for tier in ledger.tiers():
        stored = {(b.topic, b.window_start): b.counts for b in queries.balances(opened, tier)}
        for balance in ledger.balances(tier):
            if stored.get((balance.topic, balance.window_start)) != balance.counts:
                at = format_instant(balance.window_start or 0)
                differing.setdefault(
                    balance.topic,
                    f"{balance.topic}: the store's sums of tier {tier} in the window {at} are not "
                    "those of the audit topic",
                )
    return dict(sorted(differing.items()))
