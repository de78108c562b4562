"""`headworks audit status`: what was sent, what arrived, what was lost, what came twice."""

from __future__ import annotations

from dataclasses import asdict
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cli.output import Format, FormatOption, percent, print_json, print_table
from headworks.settings import resolve

if TYPE_CHECKING:
    from audit.ledger import Balance

__all__ = ["audit_app"]

audit_app = typer.Typer(no_args_is_help=True, help="The audit trail: sent, arrived, lost, doubled.")


@audit_app.callback()
def audit() -> None:
    """The audit trail: sent, arrived, lost, doubled."""


@audit_app.command()
def status(
    tier: Annotated[str, typer.Option(help="the tier to compare with the producers")] = "hadoop",
    topic: Annotated[str | None, typer.Option(help="one topic, window by window")] = None,
    bootstrap: Annotated[str | None, typer.Option(help="address of the broker")] = None,
    registry: Annotated[str | None, typer.Option(help="address of the registry")] = None,
    format: FormatOption = Format.TEXT,
) -> None:
    """Compare a tier with the producers, per topic; exit 1 if anything is lost or doubled."""
    from audit.ledger import total
    from audit.reader import read_ledger
    from headworks.errors import FindingsError

    ledger = read_ledger(resolve("bootstrap", bootstrap), resolve("registry", registry))
    if topic is None:
        rows = [total(ledger.balances(tier, name), name) for name in ledger.topics()]
    else:
        rows = ledger.balances(tier, topic)
    everything = total(rows, "all")
    if format is Format.JSON:
        print_json(
            {"tier": tier, "rows": [_as_json(r) for r in rows], "total": _as_json(everything)}
        )
    else:
        _print(rows, everything)
    if not everything.complete:
        raise FindingsError(
            f"{everything.lost} messages lost and {everything.duplicated} duplicated "
            f"between the producers and {tier}",
            fix="run the loader (`headworks load run`) if it has not run since, then look at "
            "the windows of a topic with --topic",
        )


def _as_json(balance: Balance) -> dict[str, Any]:
    start = balance.window_start
    return {
        **asdict(balance),
        "window_start": None if start is None else _clock(start),
        "completeness": balance.completeness,
    }


def _print(rows: list[Balance], everything: Balance) -> None:
    header = (
        "topic",
        "window",
        "sent",
        "arrived",
        "lost",
        "duplicated",
        "dropped",
        "unresolved",
        "complete",
    )
    print_table(
        header,
        [
            (
                row.topic,
                "all" if row.window_start is None else _clock(row.window_start),
                row.sent,
                row.accounted,
                row.lost,
                row.duplicated,
                row.dropped,
                row.unresolved,
                percent(row.completeness) if row.referenced else "no producer counts",
            )
            for row in [*rows, everything]
        ],
    )


def _clock(millis: int) -> str:
    return datetime.fromtimestamp(millis / 1000, UTC).isoformat().replace("+00:00", "Z")
