"""`headworks consume TOPIC`: the decoded messages of a topic as JSON lines."""

from __future__ import annotations

import json
import sys
import time
import uuid
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headworks._cli.output import Format, FormatOption, print_status
from headworks._settings import resolve
from headworks.errors import UsageError

if TYPE_CHECKING:
    from consumer_sdk import Message

__all__ = ["consume"]


class Start(StrEnum):
    """Where to begin."""

    EARLIEST = "earliest"
    LATEST = "latest"


def consume(
    topic: Annotated[str, typer.Argument(help="the topic to read")],
    maximum: Annotated[
        int | None, typer.Option("--max", min=1, help="stop after N messages")
    ] = None,
    idle: Annotated[
        float | None, typer.Option(help="stop when none has come for so many seconds")
    ] = None,
    start: Annotated[
        Start, typer.Option("--from", help="where to begin if the group has no offsets")
    ] = Start.EARLIEST,
    group: Annotated[
        str | None, typer.Option(help="read as a member of this group, and commit")
    ] = None,
    skip_poison: Annotated[
        bool, typer.Option("--skip-poison", help="skip what cannot be decoded, and count it")
    ] = False,
    bootstrap: Annotated[str | None, typer.Option(help="address of the broker")] = None,
    registry: Annotated[str | None, typer.Option(help="address of the registry")] = None,
    format: FormatOption = Format.TEXT,
) -> None:
    """Print the messages of a topic, decoded, one a line, until --max, --idle or Ctrl-C."""
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
    from consumer_sdk._jsonable import plain

    event = json.dumps(message.event, default=plain, ensure_ascii=False)
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
