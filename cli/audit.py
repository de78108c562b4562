"""`headworks audit status|explain`: what was sent, what arrived, what was lost, what came twice."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headworks._cli.audit_checks import Bootstrap, Registry, StoreOption, verify, wait
from headworks._cli.audit_run import run
from headworks._cli.audit_store import reconciled_store
from headworks._cli.broker_address import ZooKeeper, bootstrap_servers
from headworks._cli.output import (
    Format,
    FormatOption,
    percent,
    print_json,
    print_status,
    print_table,
)
from headworks._cli.times import format_instant, parse_instant
from headworks._settings import resolve

if TYPE_CHECKING:
    from headworks._audit.balance import Balance
    from headworks._audit.increments import CountedRange
    from headworks._audit.results import Explanation

__all__ = ["audit_app"]

_WAREHOUSE = "hadoop"
_CATCH_UP = "run the loader (`headworks load run`) if it has not run since, then "

audit_app = typer.Typer(no_args_is_help=True, help="The audit trail: sent, arrived, lost, doubled.")

for _command in (run, wait, verify):
    audit_app.command()(_command)


@audit_app.callback()
def audit() -> None:
    """The audit trail: sent, arrived, lost, doubled."""


@audit_app.command()
def status(
    tier: Annotated[str, typer.Option(help="the tier to compare with the producers")] = _WAREHOUSE,
    topic: Annotated[str | None, typer.Option(help="one topic, window by window")] = None,
    since: Annotated[
        str | None, typer.Option(help="windows that start at this time, or after")
    ] = None,
    until: Annotated[str | None, typer.Option(help="windows that start before this time")] = None,
    sla: Annotated[
        float, typer.Option(min=0, max=100, help="percent that must be there exactly once")
    ] = 100.0,
    store: StoreOption = None,
    bootstrap: Bootstrap = None,
    zookeeper: ZooKeeper = None,
    registry: Registry = None,
    format: FormatOption = Format.TEXT,
) -> None:
    """Compare a tier with the producers, per topic; exit 1 if one is below the SLA."""
    from headworks._audit import queries
    from headworks._audit.balance import total
    from headworks._audit.findings import Thresholds, general_findings
    from headworks.errors import FindingsError, UsageError

    first = None if since is None else parse_instant(since, "--since")
    end = None if until is None else parse_instant(until, "--until")
    with reconciled_store(
        store, bootstrap_servers(bootstrap, zookeeper), resolve("registry", registry)
    ) as opened:
        if topic is None:
            rows = sorted(
                queries.topic_sums(opened, tier, since=first, until=end), key=lambda row: row.topic
            )
        else:
            rows = queries.balances(opened, tier, topic, since=first, until=end)
        holes = queries.holes(opened)
        tiers = [state.tier for state in queries.tiers(opened)]
        seen = general_findings(opened, time.time_ns() // 1_000_000, Thresholds())
    wrong = [one for one in seen if topic is None or one.topic in (None, topic)]
    if tier not in (_WAREHOUSE, *tiers):  # the warehouse's counts as empty until the first load
        raise UsageError(
            f"tier {tier!r} has counted nothing yet",
            fix=f"tiers that have: {', '.join(tiers) or 'none'}",
        )
    everything = total(rows, "all")
    if format is Format.JSON:
        listed = [_as_json(r) for r in rows]
        unread = asdict(holes)
        beside = {"troubles": [one.as_dict() for one in wrong], **unread}
        print_json({"tier": tier, "rows": listed, "total": _as_json(everything), **beside})
    else:
        _print(rows, everything)
        for one in wrong:
            print_status(f"{one.kind}: {one.text}")
    if holes.unreadable or holes.missed:
        raise FindingsError(
            f"{holes.unreadable} messages of the audit topic are no audit events, and "
            f"{holes.missed} were gone before they were read: the sums prove nothing",
            fix="see who writes to the topic headworks.audit, and keep it longer than the "
            "reconciler may be away",
        )
    below = [row for row in (*rows, everything) if not row.meets(sla / 100)]
    if below:
        raise FindingsError(
            f"{everything.lost} messages lost and {everything.duplicated} duplicated "
            f"between the producers and {tier}",
            fix=f"{_CATCH_UP if tier == _WAREHOUSE else ''}look at the windows of a topic with "
            "--topic, and at one with `headworks audit explain`",
        )


@audit_app.command()
def explain(
    topic: Annotated[str, typer.Argument(help="the topic")],
    window: Annotated[str, typer.Argument(help="any time in the window, like 2026-05-01T13:20Z")],
    store: StoreOption = None,
    bootstrap: Bootstrap = None,
    zookeeper: ZooKeeper = None,
    registry: Registry = None,
    format: FormatOption = Format.TEXT,
) -> None:
    """Say who counted what of one window: hosts, applications, loads and their offsets."""
    from headworks._audit import queries
    from headworks._audit_counting import window_of
    from headworks.errors import UsageError

    start = window_of(parse_instant(window, "the window"))
    with reconciled_store(
        store, bootstrap_servers(bootstrap, zookeeper), resolve("registry", registry)
    ) as opened:
        found = queries.explain(opened, topic, start)
        known = queries.topics(opened) if not found.contributions else []
    if not found.contributions and topic not in known:
        raise UsageError(
            f"no tier has counted topic {topic!r}", fix="`headworks audit status` lists topics"
        )
    if format is Format.JSON:
        print_json({**asdict(found), "window_start": format_instant(start)})
    else:
        _print_explanation(found)


def _print_explanation(found: Explanation) -> None:
    print_status(f"{found.topic}, the ten minutes from {format_instant(found.window_start)}")
    if not found.contributions:
        print_status(
            "nobody counted a message of it, or it was longer ago than who counted is remembered"
        )
    for tier, state in found.states.items():
        row = state.balance
        complete = (
            ""
            if state.complete_at is None
            else f", complete at {format_instant(state.complete_at)}"
        )
        reopened = ", reopened by late messages" if state.reopened else ""
        print_status(
            f"{tier}: expected {row.expected:,}, there {row.accounted:,}, lost {row.lost:,}, "
            f"duplicated {row.duplicated:,}{complete}{reopened}"
        )
    print_table(
        ["tier", "host", "application", "counted", "first report", "last report"],
        [
            [
                c.tier,
                c.host,
                c.application,
                _counts(c.counts),
                format_instant(c.first_sent),
                format_instant(c.last_sent),
            ]
            for c in found.contributions
        ],
    )
    if found.loads:
        sys.stdout.write("\n")
        print_table(
            ["load", "counted", "offsets", "committed"],
            [
                [
                    load.load,
                    _counts(load.counts),
                    _offsets(load.ranges),
                    format_instant(load.committed_at),
                ]
                for load in found.loads
            ],
        )


def _counts(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{name} {n:,}" for name, n in sorted(counts.items()))


def _offsets(ranges: Sequence[CountedRange]) -> str:
    return ", ".join(f"{r.partition}: {r.first}-{r.end - 1}" for r in ranges)


def _as_json(balance: Balance) -> dict[str, Any]:
    start = balance.window_start
    return {
        **asdict(balance),
        "window_start": None if start is None else format_instant(start),
        "expected": balance.expected,
        "in_flight": balance.in_flight,
        "completeness": balance.completeness,
    }


def _print(rows: list[Balance], everything: Balance) -> None:
    header = [*_COLUMNS, "complete"]
    unsure = [row.unsure for row in (*rows, everything)]
    cells = [_cells(row) for row in (*rows, everything)]
    if any(unsure):  # of a mirror alone
        header.insert(-1, "unsure")
        for line, n in zip(cells, unsure, strict=True):
            line.insert(-1, n)
    print_table(header, cells)


_COLUMNS = (
    "topic",
    "window",
    "sent",
    "arrived",
    "lost",
    "duplicated",
    "failed",
    "dropped",
    "unresolved",
)


def _cells(row: Balance) -> list[object]:
    return [
        row.topic,
        "all" if row.window_start is None else format_instant(row.window_start),
        row.sent,
        row.accounted,
        row.lost,
        row.duplicated,
        row.failed,
        row.dropped,
        row.unresolved + row.in_flight,
        percent(row.completeness) if row.referenced else "no producer counts",
    ]
