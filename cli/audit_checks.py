"""`headworks audit wait|verify`: for batch jobs that need whole hours, and for who doubts a sum."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated

import typer

from headworks._cli.audit_store import reconciled_store
from headworks._cli.broker_address import ZooKeeper, bootstrap_servers
from headworks._cli.output import Format, FormatOption, print_json, print_status, print_table
from headworks._cli.times import format_instant, parse_duration_ms, parse_instant
from headworks._settings import resolve
from headworks.errors import CorruptError, FindingsError, UsageError

if TYPE_CHECKING:
    from hadoop_loader._operations.verify import TableRows
    from headworks._audit.results import Completeness
    from headworks._audit.store import AuditStore

__all__ = ["verify", "wait"]

_POLL_SECONDS = 2.0
StoreOption = Annotated[
    str | None,
    typer.Option(help="sqlite:///FILE or postgresql://.. (setting audit_store)"),
]
Bootstrap = Annotated[str | None, typer.Option(help="address of the broker")]
Registry = Annotated[str | None, typer.Option(help="address of the registry")]


def wait(
    table: Annotated[str, typer.Argument(help="the table, or its topic")],
    until: Annotated[str, typer.Option(help="the time up to which it must be complete")],
    since: Annotated[str | None, typer.Option(help="the time from which; default: ever")] = None,
    timeout: Annotated[
        str | None, typer.Option(help="give up after 30m, 2h; 0s: ask once; default: never")
    ] = None,
    sla: Annotated[
        float, typer.Option(min=0, max=100, help="percent of a window that must be there")
    ] = 99.9,
    grace: Annotated[
        str, typer.Option(help="how long producers may take to report what they sent")
    ] = "1m",
    tier: Annotated[str, typer.Option(help="where it must be complete")] = "hadoop",
    store: StoreOption = None,
    bootstrap: Bootstrap = None,
    zookeeper: ZooKeeper = None,
    registry: Registry = None,
    format: FormatOption = Format.TEXT,
) -> None:
    """Wait until a table is complete up to a time; exit 1 if it is not when time is up."""
    end = parse_instant(until, "--until")
    start = None if since is None else parse_instant(since, "--since")
    ripe = end + parse_duration_ms("--grace", grace)
    deadline = (
        None
        if timeout is None
        else time.monotonic() + parse_duration_ms("--timeout", timeout) / 1000
    )
    at = bootstrap_servers(bootstrap, zookeeper), resolve("registry", registry)
    while True:
        with reconciled_store(store, *at) as opened:
            found = _completeness(opened, table, start, end, tier, sla / 100)
        early = time.time() * 1000 < ripe
        if found.waits_for is None and not early:
            break
        if deadline is not None and time.monotonic() >= deadline:
            _answer(found, format)
            raise FindingsError(_why_not(found, early, ripe))
        time.sleep(_POLL_SECONDS)
    _answer(found, format)


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


def _why_not(found: Completeness, early: bool, ripe: int) -> str:
    if found.waits_for is None:
        assert early
        return f"{found.topic} may still grow: producers may report until {format_instant(ripe)}"
    row = found.waits_for
    return (
        f"{found.topic} is complete up to {format_instant(found.until)} only: of the ten minutes "
        f"from there, {row.lost:,} of {row.expected:,} messages are missing"
    )


def _answer(found: Completeness, form: Format) -> None:
    if form is Format.JSON:
        print_json(
            {
                "topic": found.topic,
                "complete_until": format_instant(found.until),
                "missing": 0 if found.waits_for is None else found.waits_for.lost,
            }
        )
    elif found.waits_for is None:
        print_status(f"{found.topic} is complete up to {format_instant(found.until)}")


def verify(
    warehouse: Annotated[str | None, typer.Option(help="folder of the Hive tables")] = None,
    store: StoreOption = None,
    bootstrap: Bootstrap = None,
    zookeeper: ZooKeeper = None,
    registry: Registry = None,
    format: FormatOption = Format.TEXT,
) -> None:
    """Hold the tables' files against the commits, and both against the audit; exit 1 if unequal.

    The audit's sums are also held against a naive sum of the whole audit topic.
    """
    from hadoop_loader._operations.verify import count_rows
    from hadoop_loader._storage.filesystem import parse_path
    from headworks._audit import queries

    at = bootstrap_servers(bootstrap, zookeeper), resolve("registry", registry)
    try:
        tables = count_rows(parse_path(resolve("warehouse", warehouse)))
    except CorruptError as error:
        raise FindingsError(error.message, fix=error.fix) from None
    with reconciled_store(store, *at) as opened:
        audited = {row.topic: row.accounted for row in queries.topic_sums(opened, "hadoop")}
        differing = _differing(opened, *at)
    rows = [(found, audited.get(found.topic)) for found in tables]
    if format is Format.JSON:
        print_json(
            {
                "tables": [_table_json(found, n) for found, n in rows],
                "sums_differing": differing,
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
    wrong = [found.topic for found, n in rows if not _agrees(found, n)]
    if wrong or differing:
        raise FindingsError(
            f"{len(wrong)} tables and {len(differing)} sums of the audit are not what they "
            f"should be: {', '.join([*wrong, *differing])}",
            fix="if a load is under way, verify again when it has ended",
        )


def _agrees(found: TableRows, audited: int | None) -> bool:
    if found.in_files != found.in_commits:
        return False
    return audited is None or audited == found.in_commits + found.quarantined


def _table_json(found: TableRows, audited: int | None) -> Mapping[str, object]:
    from dataclasses import asdict

    return {**asdict(found), "in_audit": audited, "agrees": _agrees(found, audited)}


def _differing(opened: AuditStore, bootstrap: str, registry: str) -> list[str]:
    """Topics whose sums in the store are not those of the whole audit topic, added up naively.

    Where the topic's beginning is gone, or the store has forgotten, there is nothing to compare.
    """
    from headworks._audit import queries
    from headworks._audit.reader import read_whole

    ledger = read_whole(bootstrap, registry)
    if ledger is None:
        print_status("the beginning of the audit topic is gone: its sums are not added up again")
        return []
    differing = set()
    for tier in ledger.tiers():
        stored = {(b.topic, b.window_start): b for b in queries.balances(opened, tier)}
        for balance in ledger.balances(tier):
            if stored.get((balance.topic, balance.window_start)) != balance:
                differing.add(balance.topic)
    return sorted(differing)
