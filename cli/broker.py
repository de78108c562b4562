"""`headworks broker start`: run the broker."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from headworks._cli.broker_options import (
    BrokerAccessOptions,
    ClusterMemberOptions,
    ConnectionLimits,
    TopicOptions,
    UpkeepOptions,
)
from headworks._cli.option_groups import expand_groups
from headworks._cli.options import DataDirOption
from headworks._cli.output import Format, FormatOption
from headworks._cli.server_options import LogOptions
from headworks._settings import resolve

__all__ = ["broker_app"]

broker_app = typer.Typer(no_args_is_help=True, help="Run the broker: a log for any Kafka client.")


@broker_app.callback()
def _broker() -> None:
    """Run the broker: a log for any Kafka client."""


@broker_app.command()
@expand_groups
def start(
    member: ClusterMemberOptions,
    topics: TopicOptions,
    upkeep: UpkeepOptions,
    limits: ConnectionLimits,
    guard: BrokerAccessOptions,
    log: LogOptions,
    listen: Annotated[
        str | None,
        typer.Option(
            help="listen on this HOST:PORT, and advertise it; port 0: any free one"
            " (setting bootstrap)"
        ),
    ] = None,
    data_dir: DataDirOption = None,
    metrics: Annotated[
        str | None, typer.Option(help="serve Prometheus metrics on this HOST:PORT")
    ] = None,
    format: FormatOption = Format.TEXT,
) -> None:
    """Serve until SIGTERM or Ctrl-C. Print one line when the broker is ready."""
    from headworks._server.child_process import end_with_parent

    end_with_parent()

    from headworks._broker.server.run import StartOptions, run

    certificate, key = guard.tls_files
    log_format, log_level = log.resolved
    run(
        StartOptions(
            listen=resolve("bootstrap", listen),
            folder=Path(resolve("data_dir", data_dir)) / "broker",
            metrics=metrics,
            tls_cert=certificate,
            tls_key=key,
            users=guard.users_file,
            access=guard.access_file,
            insecure=guard.insecure,
            log_format=log_format,
            log_level=log_level,
            json=format is Format.JSON,
            **member.start_options,
            **topics.start_options,
            **upkeep.start_options,
            **limits.start_options,
        )
    )
