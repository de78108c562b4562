"""`headworks consume TOPIC`: print a topic's messages, decoded, as JSON lines."""

from __future__ import annotations

import json
import sys
import time
import uuid
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headworks._cli.options import BootstrapOption, RegistryOption
from headworks._cli.output import Format, FormatOption, print_status
from headworks._settings import resolve
from headworks.errors import UsageError

if TYPE_CHECKING:
    from consumer_sdk import Message

__all__ = ["consume"]


class Start(StrEnum):
    """Where a group without offsets starts."""

    EARLIEST = "earliest"
    LATEST = "latest"


def consume(
    topic: Annotated[str, typer.Argument(help="the topic to read")],
    maximum: Annotated[
        int | None, typer.Option("--max", min=1, help="stop after this many messages")
    ] = None,
    idle: Annotated[
        float | None, typer.Option(help="stop after this many seconds without a message")
    ] = None,
    start: Annotated[
        Start, typer.Option("--from", help="start here if the group has no committed offsets")
    ] = Start.EARLIEST,
    group: Annotated[
        str | None, typer.Option(help="read as a member of this group, and commit offsets")
    ] = None,
    skip_poison: Annotated[
        bool, typer.Option("--skip-poison", help="skip and count messages that cannot be decoded")
    ] = False,
    bootstrap: BootstrapOption = None,
    registry: RegistryOption = None,
    format: FormatOption = Format.TEXT,
) -> None:
    """Print a topic's messages, decoded, one per line, until --max, --idle, or Ctrl-C."""
    from consumer_sdk import Consumer, OnPoison
    from headworks._cli.broker_address import bootstrap_servers, topics_metadata

    address = bootstrap_servers(bootstrap)
    if topic not in topics_metadata(address):
        raise UsageError(f"there is no topic {topic!r}", fix="see `headworks topic list`")
    with Consumer[Any](
        topics=[topic],
        group=group or f"headworks-consume-{uuid.uuid4()}",
        bootstrap=address,
        registry=resolve("registry", registry),
        start="earliest" if start is Start.EARLIEST else "latest",
        on_poison=OnPoison.SKIP if skip_poison else OnPoison.STOP,
        commit_every=5.0 if group else None,
    ) as consumer:
        printed, last = 0, time.monotonic()
        while maximum is None or printed < maximum:
            message = consumer.poll(0.5)
            if message is not None:
                _print(message, format)
                printed, last = printed + 1, time.monotonic()
            elif idle is not None and time.monotonic() - last > idle:
                break
        if consumer.skipped:
            print_status(f"skipped {consumer.skipped} messages that could not be decoded")


def _print(message: Message[Any], format: Format) -> None:
    from consumer_sdk._jsonable import to_jsonable

    event = json.dumps(message.event, default=to_jsonable, ensure_ascii=False)
    if format is Format.TEXT:
        line = f"{message.partition}:{message.offset}\t{event}"
    else:
        line = json.dumps(
            {
                "topic": message.topic,
                "partition": message.partition,
                "offset": message.offset,
                "timestamp": message.timestamp,
                "key": None if message.key is None else message.key.decode(errors="replace"),
                "schema_id": message.schema_id,
                "event": json.loads(event),
            },
            ensure_ascii=False,
        )
    sys.stdout.write(line + "\n")
    sys.stdout.flush()
