"""`headworks audit status|explain`: the states of messages at a tier, by topic and window."""

from __future__ import annotations

import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headworks._cli.audit_checks import verify, wait
from headworks._cli.audit_run import run
from headworks._cli.audit_store import AuditOptions
from headworks._cli.option_groups import expand_groups
from headworks._cli.options import StoreOption
from headworks._cli.output import (
    Format,
    FormatOption,
    percent,
    print_json,
    print_status,
    print_table,
)
from headworks._cli.times import format_instant, parse_instant

if TYPE_CHECKING:
    from headworks._audit.balance import Balance
    from headworks._audit.findings import AuditFinding
    from headworks._audit.increments import CountedRange
    from headworks._audit.results import Explanation, Holes
    from headworks._audit.store import AuditStore

_LOADER_TIER = "hadoop"
_ALWAYS_SHOWN = ("attempted", "delivered", "loaded", "waiting", "lost", "dropped", "failed")

audit_app = typer.Typer(no_args_is_help=True, help="Compare what was sent with what arrived.")

for _command in (run, wait, verify):
    audit_app.command()(_command)


@audit_app.callback()
def audit() -> None:
    """Compare what was sent with what arrived."""


@audit_app.command()
def salvage(store: StoreOption = None) -> None:
    """Keep the intact rows of a damaged SQLite store. Its reconciler must be stopped.

    Lost sums are made again from the increments. The damaged store is moved beside the new one.
    """
    from headworks._audit.store.salvage import salvage_audit
    from headworks._cli.salvaged import print_salvaged

    print_salvaged(salvage_audit(AuditOptions(store).store_url))


@dataclass(frozen=True, slots=True)
class _Status:
    """The answer of `audit status`."""

    tier: str
    rows: list[Balance]  # by topic, or the windows of one topic
    total: Balance
    findings: list[AuditFinding]  # that concern no single window, and every surplus of the tier
    overdue: list[AuditFinding]  # messages of the tier that have waited for too long
    holes: Holes


@audit_app.command()
@expand_groups
def status(
    source: AuditOptions,
    tier: Annotated[str, typer.Option(help="compare this tier with the producers")] = _LOADER_TIER,
    topic: Annotated[str | None, typer.Option(help="show one topic, window by window")] = None,
    since: Annotated[
        str | None, typer.Option(help="only windows that start at this time or later")
    ] = None,
    until: Annotated[
        str | None, typer.Option(help="only windows that start before this time")
    ] = None,
    sla: Annotated[
        float,
        typer.Option(min=0, max=100, help="percent of messages that must arrive exactly once"),
    ] = 100.0,
    format: FormatOption = Format.TEXT,
) -> None:
    """Compare a tier with the producers, per topic.

    Exit 0 if every topic meets the SLA and nothing is overdue. A surplus is no loss: it is printed,
    and the exit code stays 0. Exit 1 for losses or duplicates beyond the SLA, for overdue messages,
    and for an audit topic that could not be read whole.
    """
    first = None if since is None else parse_instant(since, "--since")
    end = None if until is None else parse_instant(until, "--until")
    with source.reconciled_store() as store:
        found = _read_status(store, tier, topic, first, end)
    if format is Format.JSON:
        print_json(
            {
                "tier": found.tier,
                "rows": [_as_json(row) for row in found.rows],
                "total": _as_json(found.total),
                "troubles": [one.as_dict() for one in found.findings],
                **asdict(found.holes),
            }
        )
    else:
        _print(found.rows, found.total)
        for finding in found.findings:
            print_status(f"{finding.kind}: {finding.text}")
    _raise_findings(found, sla / 100)


def _read_status(
    store: AuditStore, tier: str, topic: str | None, since: int | None, until: int | None
) -> _Status:
    """Read the store. Raises UsageError for a tier that has counted nothing."""
    from headworks._audit import queries
    from headworks._audit.balance import total
    from headworks._audit.findings import WINDOW_KINDS, findings
    from headworks._audit.thresholds import stored_thresholds
    from headworks.errors import UsageError

    tiers = [state.tier for state in queries.tiers(store)]
    if tier not in (_LOADER_TIER, *tiers):  # before the first load, the loader has counted nothing
        raise UsageError(
            f"tier {tier!r} has counted nothing yet",
            fix=f"tiers that have: {', '.join(tiers) or 'none'}",
        )
    if topic is None:
        rows = queries.topic_sums(store, tier, since=since, until=until)
        rows.sort(key=lambda row: row.topic)
    else:
        rows = queries.balances(store, tier, topic, since=since, until=until)
    now, thresholds = time.time_ns() // 1_000_000, stored_thresholds(store)
    seen = [
        one
        for one in findings(store, now, thresholds)
        if topic is None or one.topic in (None, topic)
    ]
    told = [
        one
        for one in seen
        if one.kind not in WINDOW_KINDS or (one.kind, one.tier) == ("surplus", tier)
    ]
    overdue = [one for one in seen if (one.kind, one.tier) == ("overdue", tier)]
    return _Status(tier, rows, total(rows, "all"), told, overdue, queries.holes(store))


def _raise_findings(found: _Status, share: float) -> None:
    """Raise FindingsError if the sums are incomplete, or if a topic is below `share`."""
    from headworks.errors import FindingsError

    holes, total = found.holes, found.total
    if holes.unreadable or holes.missed:
        raise FindingsError(
            f"{holes.unreadable} messages of the audit topic are no audit events, and "
            f"{holes.missed} were gone before they were read: the sums prove nothing",
            fix="see who writes to the topic headworks.audit, and keep it longer than the "
            "reconciler may be away",
        )
    if found.overdue:
        raise FindingsError(
            found.overdue[0].text,
            fix="check that the loader or the consumer runs, and look at its lag",
        )
    if not all(row.meets(share) for row in (*found.rows, total)):
        bad = {
            "lost": total.lost,
            "dropped": total.dropped,
            "failed": total.failed,
            "unresolved": total.abandoned,
            "duplicated": total.duplicated,
        }
        told = ", ".join(f"{n:,} {state}" for state, n in bad.items() if n)
        raise FindingsError(
            f"of {total.attempted:,} messages, between the producers and {found.tier}: {told}",
            fix="look at the windows of a topic with --topic, and at one with "
            "`headworks audit explain`",
        )


@audit_app.command()
@expand_groups
def explain(
    source: AuditOptions,
    topic: Annotated[str, typer.Argument(help="the topic")],
    window: Annotated[
        str, typer.Argument(help="any time in the window, such as 2026-05-01T13:20Z")
    ],
    format: FormatOption = Format.TEXT,
) -> None:
    """Show who counted what in one window: hosts, applications, loads, and their offsets."""
    from headworks._audit import queries
    from headworks._audit_counting import window_of
    from headworks.errors import UsageError

    start = window_of(parse_instant(window, "the window"))
    with source.reconciled_store() as opened:
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
    from headworks._audit.states import sentence

    print_status(f"{found.topic}, the ten minutes from {format_instant(found.window_start)}")
    if not found.contributions:
        print_status(
            "no tier counted a message of it, or its details have expired (--keep-details)"
        )
    for tier, state in found.states.items():
        at = state.complete_at
        never_sent = state.balance.dropped + state.balance.failed
        what = "; what was sent had arrived at" if never_sent else ", complete at"
        complete = "" if at is None else f"{what} {format_instant(at)}"
        reopened = ", reopened by late messages" if state.reopened else ""
        print_status(f"{tier}: {sentence(state.balance)}{complete}{reopened}")
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
        "completeness": balance.completeness,
    }


def _print(rows: list[Balance], everything: Balance) -> None:
    """Print the states that have messages, and those that every reader looks for."""
    from headworks._audit.states import DEFINITIONS

    every = (*rows, everything)
    shown = [
        state
        for state in (*DEFINITIONS, "unsure")
        if state in _ALWAYS_SHOWN or any(getattr(row, state) for row in every)
    ]
    print_table(
        ["topic", "window", *shown, "complete"],
        [
            [
                row.topic,
                "all" if row.window_start is None else format_instant(row.window_start),
                *(getattr(row, state) for state in shown),
                percent(row.completeness) if row.referenced else "no producer counts",
            ]
            for row in every
        ],
    )
