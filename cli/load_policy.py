"""The options of `headworks load run` that say what it loads, and what it does with the tables."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from headworks._cli.times import parse_duration_ms

if TYPE_CHECKING:
    from hadoop_loader import Policy


@dataclass(frozen=True, slots=True)
class PolicyOptions:
    """Which topics are loaded, how their tables are partitioned, and what stops a topic."""

    allow: Annotated[
        str, typer.Option(help="load only topics whose whole name matches this regex")
    ] = ".*"
    deny: Annotated[str, typer.Option(help="skip topics whose whole name matches this regex")] = ""
    partitions: Annotated[
        str, typer.Option(help="daily, hourly, or auto: hourly for topics with many messages")
    ] = "auto"
    quarantine_limit: Annotated[
        str,
        typer.Option(help="skip a topic with more than 10% (or N) bad messages; none: no limit"),
    ] = "10%"
    skip_lost: Annotated[
        bool, typer.Option(help="continue after messages that the broker has removed")
    ] = False
    skip_damaged: Annotated[
        bool,
        typer.Option("--skip-damaged", help="continue after damaged record batches"),
    ] = False
    compact: Annotated[
        bool,
        typer.Option(
            help="compact the partitions that this load touched, if they have many small files"
        ),
    ] = True

    keep: Annotated[
        str | None,
        typer.Option(help="remove partitions of days before this long ago (400d) after the load"),
    ] = None
    rebuild: Annotated[
        str,
        typer.Option(
            help="auto: rebuild a table that cannot follow the latest schema in place; or never"
        ),
    ] = "auto"

    @property
    def policy(self) -> Policy:
        """The policy. Raises UsageError for a limit that is none."""
        from hadoop_loader._commit.policy import Policy, QuarantineLimit

        limit = QuarantineLimit.parse(self.quarantine_limit)
        return Policy(
            self.allow,
            self.deny,
            self.partitions,
            limit,
            self.skip_lost,
            self.compact,
            self.skip_damaged,
            self._keep_days,
            self.rebuild,
        )

    @property
    def _keep_days(self) -> int | None:
        if self.keep is None:
            return None
        return max(1, parse_duration_ms("--keep", self.keep, zero=False) // 86_400_000)
