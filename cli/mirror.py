"""`headworks mirror`: copy topics from one cluster, or several, into another."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TypeVar

import typer

from headworks._cli.output import Format, FormatOption
from headworks._settings import resolve
from headworks.errors import UsageError

if TYPE_CHECKING:
    from headworks._mirror import MirrorSource

__all__ = ["mirror"]

T = TypeVar("T")


def mirror(
    sources: Annotated[
        list[str], typer.Option("--from", help="broker to copy from, HOST:PORT; may be repeated")
    ],
    target: Annotated[str, typer.Option("--to", help="broker to copy into, HOST:PORT")],
    topics: Annotated[str, typer.Option(help="regular expression for whole names of topics")],
    excluding: Annotated[
        str | None, typer.Option(help="regular expression for topics to leave out")
    ] = None,
    name: Annotated[
        str, typer.Option(help="of the group on the sources, and of the tier mirror:NAME")
    ] = "main",
    from_registry: Annotated[
        list[str] | None,
        typer.Option(help="registry of the source: check ids; once, or once per --from"),
    ] = None,
    to_registry: Annotated[
        str | None, typer.Option(help="registry of the target (setting registry)")
    ] = None,
    registry_mirror: Annotated[
        bool, typer.Option("--registry-mirror", help="copy schemas, ids kept, before messages")
    ] = False,
    from_config: Annotated[
        list[Path] | None,
        typer.Option(help="client properties, name=value a line; once, or once per --from"),
    ] = None,
    to_config: Annotated[
        Path | None, typer.Option(help="client properties of the target, name=value a line")
    ] = None,
    audit: Annotated[bool, typer.Option(help="count as a tier of the target's audit")] = True,
    compression: Annotated[
        str, typer.Option(help="towards the target: none, gzip, snappy, lz4 or zstd")
    ] = "zstd",
    commit_every: Annotated[float, typer.Option(min=0.1, help="seconds between checkpoints")] = 5.0,
    refresh_every: Annotated[
        float, typer.Option(min=0.5, help="look for new topics so often, in seconds")
    ] = 10.0,
    buffer_mb: Annotated[int, typer.Option(min=4, help="memory for messages, per source")] = 64,
    skip_too_large: Annotated[
        bool, typer.Option("--skip-too-large", help="leave out, and count, what is too large")
    ] = False,
    skip_lost: Annotated[
        bool, typer.Option("--skip-lost", help="go on behind what the source no longer has")
    ] = False,
    metrics: Annotated[
        str | None, typer.Option(help="serve Prometheus metrics on this HOST:PORT")
    ] = None,
    insecure: Annotated[
        bool, typer.Option(help="let other machines read the metrics, unasked who they are")
    ] = False,
    data_dir: Annotated[
        str | None, typer.Option(help="folder of all state (setting data_dir)")
    ] = None,
    log_format: Annotated[
        str | None, typer.Option(help="log to stderr as text or json (setting log_format)")
    ] = None,
    log_level: Annotated[
        str | None, typer.Option(help="debug, info, warning or error (setting log_level)")
    ] = None,
    format: FormatOption = Format.TEXT,
) -> None:
    """Copy topics until Ctrl-C, at least once each: partition, key, time, headers and bytes."""
    from headworks._server.child_process import end_with_parent

    end_with_parent()

    from headworks._mirror import MirrorOptions, read_properties, run
    from headworks._mirror.options import whole_names
    from headworks._server.logs import configure

    configure(resolve("log_format", log_format), resolve("log_level", log_level))
    options = MirrorOptions(
        name=name,
        sources=_sources(sources, from_registry or [], from_config or []),
        target=target,
        target_client=read_properties(target, to_config),
        topics=whole_names(topics, "--topics"),
        excluding=None if excluding is None else whole_names(excluding, "--excluding"),
        registry=resolve("registry", to_registry),
        copy_schemas=registry_mirror,
        audit=audit,
        folder=Path(resolve("data_dir", data_dir)) / "mirror" / name,
        compression=compression,
        commit_every=commit_every,
        refresh_every=refresh_every,
        buffer_bytes=buffer_mb << 20,
        skip_too_large=skip_too_large,
        skip_lost=skip_lost,
        metrics=metrics,
        insecure=insecure,
        as_json=format is Format.JSON,
    )
    run(options)


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
    """None for all, one for all, or one for each."""
    if len(given) not in (0, 1, len(addresses)):
        raise UsageError(
            f"{option} is given {len(given)} times and --from {len(addresses)} times",
            fix="give it once for all, or once for each, in the same order",
        )
    if len(given) == len(addresses):
        return list(given)
    return [given[0] if given else None for _ in addresses]
