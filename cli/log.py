"""`headworks log`: verify the segments of a partition, and keep what is intact of a damaged one."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headworks._cli.output import Format, FormatOption, print_status

if TYPE_CHECKING:
    from headworks._broker.log.dump import DumpedBatch, SegmentDamage
    from headworks._broker.log.salvage import Salvage

log_app = typer.Typer(no_args_is_help=True, help="Inspect the broker's log files.")


@log_app.callback()
def _log() -> None:
    """Inspect the broker's log files."""


@log_app.command()
def dump(
    path: Annotated[Path, typer.Argument(help="segment (.log), or folder of a partition")],
    records: Annotated[bool, typer.Option(help="show the records, too")] = False,
    format: FormatOption = Format.TEXT,
) -> None:
    """Show every batch and verify it. Exit 1 if anything is damaged."""
    from headworks._broker.log.dump import SegmentDamage, dump_segment, gaps, segments_of
    from headworks.errors import FindingsError

    show = _as_json if format is Format.JSON else _as_text
    damaged: list[SegmentDamage] = []
    ends: list[tuple[Path, int]] = []
    for segment in segments_of(path):
        end = int(segment.stem)
        for item in dump_segment(segment, records=records):
            if isinstance(item, SegmentDamage):
                damaged.append(item)
            else:
                end = item.batch.last_offset + 1
            for line in show(item):
                typer.echo(line)
        ends.append((segment, end))
    for item in gaps(ends):
        damaged.append(item)
        for line in show(item):
            typer.echo(line)
    if damaged:
        first = damaged[0]
        raise FindingsError(
            f"{len(damaged)} damage(s), the first in {first.segment} at byte {first.position}:"
            f" {first.reason}",
            fix="run `headworks log salvage` for the folder: it shows which offsets are lost, and"
            " can rewrite the log. The broker itself cuts a torn end of the newest segment",
        )


@log_app.command()
def salvage(
    path: Annotated[
        Path, typer.Argument(help="folder of a partition, or a file that recovery cut (.cut)")
    ],
    records: Annotated[bool, typer.Option(help="show the intact records, too")] = False,
    repair: Annotated[
        bool,
        typer.Option(
            "--repair", help="rewrite the folder from its intact batches, and keep the old one"
        ),
    ] = False,
    format: FormatOption = Format.TEXT,
) -> None:
    """Find every intact batch of a damaged log. Exit 1 if anything is damaged and not repaired.

    With --repair the broker must be stopped. Intact messages keep their offsets, and lost offsets
    are never used again.
    """
    from headworks._broker.log.repair import repair as rewrite
    from headworks._broker.log.salvage import salvage_file, salvage_folder
    from headworks._broker.log.segment import salvage_fix
    from headworks._broker.server.folder_lock import FolderLock
    from headworks.errors import FindingsError, UsageError

    is_file = path.is_file() and path.suffix in (".cut", ".log") and not repair
    if not is_file and not _is_partition(path):
        raise UsageError(
            f"{path} is not the folder of a partition",
            fix="give for example headworks-data/broker/logs/TOPIC-0",
        )
    found: Salvage
    if repair:
        logs = path.resolve().parent
        lock = FolderLock(logs.parent) if logs.name == "logs" else None
        try:
            found, old = rewrite(path.resolve())
        finally:
            if lock is not None:
                lock.release()
    else:
        found = salvage_folder(path) if path.is_dir() else salvage_file(path)
    show = _salvage_as_json if format is Format.JSON else _salvage_as_text
    for line in show(found):
        typer.echo(line)
    if records:
        from headworks._broker.log.salvage import read_run

        show_batch = _as_json if format is Format.JSON else _as_text
        for run in found.runs:
            for batch in read_run(run):
                for line in show_batch(batch):
                    typer.echo(line)
    if repair:
        print_status(f"{path} holds the intact batches; the damaged folder is {old}")
    elif found.damaged or found.lost or found.state_damage:
        raise FindingsError(
            f"{path}: {sum(end - first for first, end in found.lost)} offsets are lost,"
            f" {sum(run.end - run.first for run in found.runs)} are intact",
            fix=salvage_fix(path),
        )


def _salvage_as_text(found: Salvage) -> Iterator[str]:
    if found.state_damage:
        yield f"DAMAGED: {found.state_damage}"
    for run in found.runs:
        yield (
            f"{run.path.name} @{run.position}: intact offsets {run.first}..{run.end - 1}"
            f" {run.size} bytes"
        )
    for one in found.damaged:
        yield f"{one.path.name} @{one.position}: DAMAGED: {one.size} bytes: {one.reason}"
    for first, end in found.lost:
        yield f"LOST: offsets {first}..{end - 1}"


def _is_partition(folder: Path) -> bool:
    """Return whether a folder is named as a partition's, or holds a log, as a copy of one does."""
    if not folder.is_dir():
        return False
    _, dash, number = folder.resolve().name.rpartition("-")
    return bool(dash and number.isdecimal()) or any(folder.glob("*.log"))


def _salvage_as_json(found: Salvage) -> Iterator[str]:
    if found.state_damage:
        yield json.dumps({"damage": found.state_damage})
    for run in found.runs:
        place = {"segment": run.path.name, "position": run.position, "bytes": run.size}
        yield json.dumps({**place, "first_offset": run.first, "last_offset": run.end - 1})
    for one in found.damaged:
        place = {"segment": one.path.name, "position": one.position, "bytes": one.size}
        yield json.dumps({**place, "damage": one.reason})
    for first, end in found.lost:
        yield json.dumps({"lost_first_offset": first, "lost_last_offset": end - 1})


def _as_text(item: DumpedBatch | SegmentDamage) -> Iterator[str]:
    from headworks._broker.log.dump import SegmentDamage
    from headworks._kafka.records import Codec

    if isinstance(item, SegmentDamage):
        yield f"{item.segment.name} @{item.position}: DAMAGED: {item.reason}"
        return
    batch = item.batch
    producer = (
        f" producer {batch.producer_id}/{batch.producer_epoch} sequence {batch.base_sequence}"
    )
    yield (
        f"{item.segment.name} @{batch.position}: offsets {batch.base_offset}..{batch.last_offset}"
        f" {batch.size} bytes {Codec(batch.codec).name.lower()}"
        f" times {batch.base_timestamp}..{batch.max_timestamp}"
        f"{producer if batch.producer_id >= 0 else ''}"
        f"{' transactional' if item.transactional else ''}"
        f"{f' marker: {item.marker}' if item.marker else ''}"
    )
    if item.marker:
        return
    for record in item.records:
        yield f"  {record.offset} {record.timestamp} key={record.key!r} value={record.value!r}"


def _as_json(item: DumpedBatch | SegmentDamage) -> Iterator[str]:
    from headworks._broker.log.dump import SegmentDamage
    from headworks._kafka.records import Codec

    fields: dict[str, Any]
    if isinstance(item, SegmentDamage):
        fields = {"damage": item.reason, "position": item.position}
    else:
        batch = item.batch
        fields = {
            "position": batch.position,
            "base_offset": batch.base_offset,
            "last_offset": batch.last_offset,
            "bytes": batch.size,
            "codec": Codec(batch.codec).name.lower(),
            "base_timestamp": batch.base_timestamp,
            "max_timestamp": batch.max_timestamp,
            "producer_id": batch.producer_id,
            "producer_epoch": batch.producer_epoch,
            "base_sequence": batch.base_sequence,
            "records": batch.record_count,
            "transactional": item.transactional,
            "marker": item.marker or None,
        }
        if item.records and not item.marker:
            fields["content"] = [
                {
                    "offset": record.offset,
                    "timestamp": record.timestamp,
                    "key": _text(record.key),
                    "value": _text(record.value),
                    "headers": [[name, _text(value)] for name, value in record.headers],
                }
                for record in item.records
            ]
    yield json.dumps({"segment": item.segment.name, **fields})


def _text(data: bytes | None) -> str | None:
    """Return bytes as text for JSON: latin-1, from which every byte can be restored."""
    return None if data is None else data.decode("latin-1")
