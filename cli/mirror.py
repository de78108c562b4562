"""`headworks mirror`: copy topics from one or more clusters into another."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer

from headworks._cli.broker_address import cluster_metadata
from headworks._cli.option_groups import expand_groups
from headworks._cli.options import DataDirOption
from headworks._cli.output import Format, FormatOption
from headworks._cli.server_options import LogOptions
from headworks._settings import resolve
from headworks.errors import UnreachableError, UsageError

if TYPE_CHECKING:
    from headworks._mirror import MirrorOptions, MirrorSource

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class SchemaOptions:
    """The registries of both sides, and whether schemas are copied."""

    from_registry: Annotated[
        list[str] | None,
        typer.Option(help="registry of the source, to check ids; once, or once per --from"),
    ] = None
    to_registry: Annotated[
        str | None, typer.Option(help="registry of the target (setting registry)")
    ] = None
    registry_mirror: Annotated[
        bool,
        typer.Option("--registry-mirror", help="copy schemas with their ids before messages"),
    ] = False


@dataclass(frozen=True, slots=True)
class ClientOptions:
    """The Kafka clients of both sides."""

    from_config: Annotated[
        list[Path] | None,
        typer.Option(
            help="file of client properties for a source, name=value per line;"
            " once, or once per --from"
        ),
    ] = None
    to_config: Annotated[
        Path | None,
        typer.Option(help="file of client properties for the target, name=value per line"),
    ] = None
    compression: Annotated[
        str, typer.Option(help="compress towards the target: none, gzip, snappy, lz4, or zstd")
    ] = "zstd"
    buffer_mb: Annotated[
        int, typer.Option(min=4, help="buffer at most this many MB of messages per source")
    ] = 64


@dataclass(frozen=True, slots=True)
class CopyOptions:
    """How often the mirror commits, and what it skips."""

    commit_every: Annotated[
        float, typer.Option(min=0.1, help="commit on the sources every this many seconds")
    ] = 5.0
    refresh_every: Annotated[
        float, typer.Option(min=0.5, help="look for new topics every this many seconds")
    ] = 10.0
    skip_too_large: Annotated[
        bool, typer.Option("--skip-too-large", help="skip and count messages above the size limit")
    ] = False
    skip_damaged: Annotated[
        bool,
        typer.Option("--skip-damaged", help="skip and count record batches whose CRC is wrong"),
    ] = False
    skip_lost: Annotated[
        bool,
        typer.Option("--skip-lost", help="continue after messages that the source has removed"),
    ] = False


@expand_groups
def mirror(
    schemas: SchemaOptions,
    clients: ClientOptions,
    copying: CopyOptions,
    log: LogOptions,
    sources: Annotated[
        list[str], typer.Option("--from", help="copy from this broker, HOST:PORT; repeatable")
    ],
    target: Annotated[str, typer.Option("--to", help="copy into this broker, HOST:PORT")],
    topics: Annotated[
        str, typer.Option(help="copy topics whose whole name matches this regular expression")
    ],
    excluding: Annotated[
        str | None, typer.Option(help="except those that match this regular expression")
    ] = None,
    name: Annotated[
        str, typer.Option(help="name of the group on the sources, and of the tier mirror:NAME")
    ] = "main",
    audit: Annotated[bool, typer.Option(help="count as a tier in the target's audit")] = True,
    metrics: Annotated[
        str | None, typer.Option(help="serve Prometheus metrics on this HOST:PORT")
    ] = None,
    insecure: Annotated[bool, typer.Option(help="let other machines read the metrics")] = False,
    data_dir: DataDirOption = None,
    format: FormatOption = Format.TEXT,
) -> None:
    """Copy topics until Ctrl-C, at least once: partition, key, time, headers, and bytes."""
    from headworks._server.child_process import end_with_parent

    end_with_parent()

    from headworks._mirror import MirrorOptions, read_properties
    from headworks._mirror.options import whole_names
    from headworks._server.metrics_page import MetricsEndpoint

    log.configure()
    options = MirrorOptions(
        name=name,
        sources=_sources(sources, schemas.from_registry or [], clients.from_config or []),
        target=target,
        target_client=read_properties(target, clients.to_config),
        topics=whole_names(topics, "--topics"),
        excluding=None if excluding is None else whole_names(excluding, "--excluding"),
        registry=resolve("registry", schemas.to_registry),
        copy_schemas=schemas.registry_mirror,
        audit=audit,
        folder=Path(resolve("data_dir", data_dir)) / "mirror" / name,
        compression=clients.compression,
        commit_every=copying.commit_every,
        refresh_every=copying.refresh_every,
        buffer_bytes=clients.buffer_mb << 20,
        skip_too_large=copying.skip_too_large,
        skip_damaged=copying.skip_damaged,
        skip_lost=copying.skip_lost,
        metrics=None if metrics is None else MetricsEndpoint.parse(metrics, insecure=insecure),
        as_json=format is Format.JSON,
    )
    _run(options)


def _run(options: MirrorOptions) -> None:
    """Run the mirror. If the brokers of one side do not answer, the error has the reason."""
    from headworks._mirror import run

    try:
        run(options)
    except UnreachableError:
        for source in options.sources:
            cluster_metadata(source.bootstrap, properties=source.client, option="--from")
        cluster_metadata(options.target, properties=options.target_client, option="--to")
        raise


def _sources(
    addresses: list[str], registries: list[str], configs: list[Path]
) -> tuple[MirrorSource, ...]:
    from headworks._mirror import MirrorSource, read_properties

    return tuple(
        MirrorSource(address, read_properties(address, config), registry)
        for address, registry, config in zip(
            addresses,
            _one_each(addresses, registries, "--from-registry"),
            _one_each(addresses, configs, "--from-config"),
            strict=True,
        )
    )


def _one_each(addresses: list[str], given: Sequence[T], option: str) -> list[T | None]:
    """Return one value per address: None for all, one for all, or one each."""
    if len(given) not in (0, 1, len(addresses)):
        raise UsageError(
            f"{option} is given {len(given)} times and --from {len(addresses)} times",
            fix="give it once for all, or once for each, in the same order",
        )
    if len(given) == len(addresses):
        return list(given)
    return [given[0] if given else None for _ in addresses]
