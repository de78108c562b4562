"""`headworks group`: list, describe, move, export, import, and delete consumer groups."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, cast

import typer

from headworks._cli.broker_address import bootstrap_servers, topics_metadata
from headworks._cli.confirmation import YesOption, confirm
from headworks._cli.options import BootstrapOption
from headworks._cli.output import (
    Format,
    FormatOption,
    number_of,
    print_json,
    print_rows,
    print_status,
    print_table,
)
from headworks._settings import resolve_optional
from headworks.errors import FindingsError, UsageError

if TYPE_CHECKING:
    from headworks.groups import GroupDescription, Groups, TopicPartition
    from headworks.groups._moving import OffsetChange, ResetTarget

group_app = typer.Typer(no_args_is_help=True, help="Show and move consumer groups of both kinds.")
ZooKeeper = Annotated[
    str | None,
    typer.Option(
        "--zookeeper",
        help="include decentralized groups at HOST:PORT[,..][/chroot] (setting zookeeper)",
    ),
]
Name = Annotated[str, typer.Argument(metavar="GROUP", help="the group")]
DryRun = Annotated[
    bool, typer.Option("--dry-run", help="show what would change, and change nothing")
]


@group_app.command("list")
def list_groups(
    lag: Annotated[bool, typer.Option("--lag", help="show lag in messages and in time")] = False,
    bootstrap: BootstrapOption = None,
    zookeeper: ZooKeeper = None,
    format: FormatOption = Format.TEXT,
) -> None:
    """List the groups, their kind, and whether they have members."""
    with _groups(bootstrap, zookeeper) as groups:
        if lag:
            _print_with_lag(groups.described(), format)
            return
        listed = groups.listed()
    rows = [(group.name, group.kind.value, group.state) for group in listed]
    print_rows(("group", "kind", "state"), rows, format)


@group_app.command()
def describe(
    group: Name,
    verify: Annotated[
        bool, typer.Option("--verify", help="exit 1 unless each partition has an owner")
    ] = False,
    bootstrap: BootstrapOption = None,
    zookeeper: ZooKeeper = None,
    format: FormatOption = Format.TEXT,
) -> None:
    """Show a group's members and, per partition, its owner, offset, and lag."""
    with _groups(bootstrap, zookeeper) as groups:
        found = groups.described([group])[0]
    if format is Format.JSON:
        print_json(found.as_json())
    else:
        print_status(
            f"{found.name}: {found.kind.value}, {found.state}, {len(found.members)} members"
        )
        print_table(
            ("topic", "partition", "committed", "end", "lag", "behind", "owner"),
            [
                (
                    p.topic,
                    p.partition,
                    _number(p.committed),
                    _number(p.log_end_offset),
                    _number(p.lag),
                    _age(p.behind_ms),
                    p.owner or "-",
                )
                for p in found.positions
            ],
        )
    if verify:
        _verify(found)


@group_app.command()
def reset(
    group: Name,
    to: Annotated[
        str | None,
        typer.Option(
            "--to", help="move to earliest, latest, an ISO time with a zone, or an offset"
        ),
    ] = None,
    shift: Annotated[
        int | None, typer.Option("--shift", help="move by this many messages; negative: back")
    ] = None,
    topic: Annotated[
        list[str] | None,
        typer.Option(
            "--topic", help="TOPIC or TOPIC:N,N (default: all partitions with committed offsets)"
        ),
    ] = None,
    dry_run: DryRun = False,
    bootstrap: BootstrapOption = None,
    zookeeper: ZooKeeper = None,
    format: FormatOption = Format.TEXT,
) -> None:
    """Move the offsets of a group without members."""
    from headworks.groups._moving import planned_changes

    target = _target(to, shift)
    with _groups(bootstrap, zookeeper) as groups:
        known = {listed.name for listed in groups.listed()}
        found = groups.described([group], age_timeout=0)[0] if group in known else None
        moves = planned_changes(groups, _places(groups, found, group, topic or ()), target, found)
        if not dry_run:
            groups.move(group, {move.partition: move.after for move in moves})
    _print_moves({group: moves}, format, dry_run=dry_run)


@group_app.command("offsets-export")
def offsets_export(
    group: Annotated[
        list[str] | None,
        typer.Argument(metavar="[GROUP]...", help="group to export (default: all groups)"),
    ] = None,
    out: Annotated[
        Path | None, typer.Option("--out", help="write to this file (default: stdout)")
    ] = None,
    bootstrap: BootstrapOption = None,
    zookeeper: ZooKeeper = None,
) -> None:
    """Write the committed offsets of groups as JSON."""
    from headworks.groups._moving import ExportedOffsets, dump_offsets

    with _groups(bootstrap, zookeeper) as groups:
        found = groups.described(group or None, age_timeout=0)
    text = dump_offsets(ExportedOffsets(g.name, g.kind, g.offsets) for g in found)
    if out is None:
        sys.stdout.write(text)
        return
    try:
        out.write_text(text, encoding="utf-8")
    except OSError as error:
        raise UsageError(f"{out} cannot be written: {error.strerror}") from None
    print_status(f"wrote the positions of {number_of(len(found), 'group')} to {out}")


@group_app.command("offsets-import")
def offsets_import(
    file: Annotated[Path, typer.Argument(help="file that offsets-export wrote; -: stdin")],
    group: Annotated[
        list[str] | None, typer.Option("--group", help="import only this group; repeatable")
    ] = None,
    dry_run: DryRun = False,
    bootstrap: BootstrapOption = None,
    zookeeper: ZooKeeper = None,
    format: FormatOption = Format.TEXT,
) -> None:
    """Commit the offsets in a file, for groups without members."""
    from headworks.groups._moving import OffsetChange, load_offsets

    try:
        text = sys.stdin.read() if str(file) == "-" else file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{file} cannot be read: {error}") from None
    exported = {one.name: one for one in load_offsets(text, str(file))}
    missing = sorted(set(group or ()) - exported.keys())
    if missing:
        raise UsageError(f"{file} has no group {missing[0]!r}")
    chosen = [one for name, one in exported.items() if not group or name in group]
    with _groups(bootstrap, zookeeper) as groups:
        known = {listed.name for listed in groups.listed()}
        names = [one.name for one in chosen if one.name in known]
        before = {g.name: g.offsets for g in groups.described(names, age_timeout=0)}
        moves = {
            one.name: [
                OffsetChange(place, before.get(one.name, {}).get(place), offset)
                for place, offset in sorted(one.offsets.items())
            ]
            for one in chosen
        }
        groups.refuse_active(one.name for one in chosen)
        for one in () if dry_run else chosen:
            groups.move(one.name, one.offsets, kind=one.kind)
    _print_moves(moves, format, dry_run=dry_run)


@group_app.command()
def delete(
    group: Name,
    yes: YesOption = False,
    bootstrap: BootstrapOption = None,
    zookeeper: ZooKeeper = None,
) -> None:
    """Delete a group without members, and its offsets."""
    if not yes:
        confirm(f"delete group {group} and its offsets?")
    with _groups(bootstrap, zookeeper) as groups:
        groups.delete(group)
    print_status(f"deleted {group}")


def _groups(bootstrap: str | None, zookeeper: str | None) -> Groups:
    from headworks.groups import Groups

    ensemble = resolve_optional("zookeeper", zookeeper)
    servers = bootstrap_servers(bootstrap, zookeeper)
    if ensemble is None:
        topics_metadata(servers)  # raises soon, with the reason, if no broker answers
    return Groups(servers, ensemble)


def _target(to: str | None, shift: int | None) -> ResetTarget:
    from headworks.groups._moving import OffsetShift

    if (to is None) == (shift is None):
        raise UsageError("a reset goes either --to a place, or by a --shift", fix="give one")
    if shift is not None:
        return OffsetShift(shift)
    assert to is not None
    if to in ("earliest", "latest"):
        return cast("ResetTarget", to)
    if to.isdecimal():
        return int(to)
    try:
        instant = datetime.fromisoformat(to)
    except ValueError:
        instant = None
    if instant is None or instant.tzinfo is None:
        what = "is none of these" if instant is None else "has no time zone"
        raise UsageError(
            f"--to {to!r} {what}",
            fix="earliest, latest, an offset like 1200, or a time like 2026-05-01T12:00:00Z",
        )
    return instant


def _places(
    groups: Groups, found: GroupDescription | None, name: str, topics: Sequence[str]
) -> list[TopicPartition]:
    from headworks.groups._moving import partitions_named, topics_named

    if not topics:
        if found is None or not found.offsets:
            raise UsageError(
                f"group {name!r} has no committed offsets", fix="name a topic: --topic TOPIC"
            )
        return sorted(found.offsets)
    all_of: dict[str, list[TopicPartition]] = {}
    for place in groups.partitions(topics_named(topics)):
        all_of.setdefault(place.topic, []).append(place)
    return partitions_named(topics, all_of)


def _verify(group: GroupDescription) -> None:
    orphans = [p for p in group.positions if p.owner is None]
    if orphans:
        first = orphans[0]
        raise FindingsError(
            f"{len(orphans)} partitions of group {group.name} have no owner, the first is"
            f" {first.topic} partition {first.partition}",
            fix="start a consumer of the group, or wait until it has settled",
        )


def _print_with_lag(groups: Sequence[GroupDescription], format: Format) -> None:
    if format is Format.JSON:
        print_json([group.as_json() for group in groups])
        return
    print_table(
        ("group", "kind", "state", "members", "lag", "behind", "unknown"),
        [
            (g.name, g.kind.value, g.state, len(g.members), g.lag, _age(g.behind_ms), g.unknown)
            for g in groups
        ],
    )


def _print_moves(moves: dict[str, list[OffsetChange]], format: Format, *, dry_run: bool) -> None:
    if format is Format.JSON:
        print_json(
            [
                {"group": name, "done": not dry_run, "moves": [move.as_json() for move in parts]}
                for name, parts in moves.items()
            ]
        )
        return
    print_table(
        ("group", "topic", "partition", "before", "after"),
        [
            (name, *move.partition, _number(move.before), move.after)
            for name, parts in moves.items()
            for move in parts
        ],
    )
    print_status("nothing was changed" if dry_run else f"moved {', '.join(moves)}")


def _number(value: int | None) -> int | str:
    return "-" if value is None else value


def _age(milliseconds: int | None) -> str:
    """Return an age in the largest unit of which it has two."""
    if milliseconds is None:
        return "-"
    seconds = milliseconds / 1000
    for unit, size in (("d", 86_400), ("h", 3_600), ("min", 60)):
        if seconds >= 2 * size:
            return f"{seconds / size:.1f} {unit}"
    return f"{seconds:.1f} s"
