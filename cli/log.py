"""`headworks log dump`: show a partition's segments and verify every batch."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headworks._cli.output import Format, FormatOption

if TYPE_CHECKING:
    from headworks._broker.log.dump import DumpedBatch, SegmentDamage

__all__ = ["log_app"]

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
            fix="the broker cuts a torn end of the newest segment when it starts; restore others"
            " from a copy",
        )


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
    )
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
        }
        if item.records:
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
