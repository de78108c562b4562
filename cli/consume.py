"""`headworks consume TOPIC`: print a topic's messages, decoded, as JSON lines."""

from __future__ import annotations

import json
import sys
import time
import uuid
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from headworks._cli.option_groups import expand_groups
from headworks._cli.options import BootstrapOption, RegistryOption
from headworks._cli.output import Format, FormatOption, number_of, print_status
from headworks._cli.times import parse_instant
from headworks._settings import resolve
from headworks.errors import UsageError

if TYPE_CHECKING:
    from consumer_sdk import Consumer, Message, Partition


@dataclass(frozen=True, slots=True)
class SelectionOptions:
    """Which messages are printed: all, or those from a place on, of one partition, or one key."""

    start: Annotated[
        str,
        typer.Option(
            "--from",
            help="start here if the group has no committed offsets: earliest, latest, or a time"
            " such as 2026-05-01T12:00Z",
        ),
    ] = "earliest"
    partition: Annotated[
        int | None, typer.Option(min=0, help="print the messages of this partition only")
    ] = None
    offset: Annotated[
        int | None, typer.Option(min=0, help="start at this offset of --partition")
    ] = None
    key: Annotated[
        str | None, typer.Option(help="print the messages with this key only, as text")
    ] = None
    group: Annotated[
        str | None, typer.Option(help="read as a member of this group, and commit offsets")
    ] = None

    def includes(self, message: Message[Any]) -> bool:
        """Return whether a message is printed."""
        key = None if self.key is None else self.key.encode()
        return self.partition in (None, message.partition) and key in (None, message.key)

    def check(self, address: str, topic: str) -> None:
        """Raise UsageError for options that exclude each other, or that the topic lacks."""
        if self.group is not None and (self.partition, self.offset) != (None, None):
            raise UsageError(
                "a group reads all partitions from its committed offsets",
                fix="leave out --group, or move the group with `headworks group reset`",
            )
        if self.partition is None and self.offset is not None:
            raise UsageError("an offset belongs to a partition", fix="give --partition, too")
        _check_place(address, topic, self.partition, self.offset)


@expand_groups
def consume(
    topic: Annotated[str, typer.Argument(help="the topic to read")],
    chosen: SelectionOptions,
    maximum: Annotated[
        int | None, typer.Option("--max", min=1, help="stop after this many messages")
    ] = None,
    idle: Annotated[
        float | None, typer.Option(help="stop after this many seconds without a message")
    ] = None,
    skip_poison: Annotated[
        bool, typer.Option("--skip-poison", help="skip and count messages that cannot be decoded")
    ] = False,
    skip_damaged: Annotated[
        bool,
        typer.Option("--skip-damaged", help="skip and count record batches whose CRC is wrong"),
    ] = False,
    bootstrap: BootstrapOption = None,
    registry: RegistryOption = None,
    format: FormatOption = Format.TEXT,
) -> None:
    """Print a topic's messages, decoded, one per line, until --max, --idle, or Ctrl-C."""
    from consumer_sdk import Consumer, DamagedBatchError, OnPoison, PoisonMessageError
    from headworks._cli.broker_address import bootstrap_servers

    address, begin = bootstrap_servers(bootstrap), _start_of(chosen.start)
    chosen.check(address, topic)

    def keep_to_partition(assigned: list[Partition]) -> None:
        # Only so is nothing of the others decoded, and no poison in them ends the command.
        consumer.pause([one for one in assigned if chosen.partition not in (None, one.partition)])

    with Consumer[Any](
        topics=[topic],
        group=chosen.group or f"headworks-consume-{uuid.uuid4()}",
        bootstrap=address,
        registry=resolve("registry", registry),
        start=begin,
        on_poison=OnPoison.SKIP if skip_poison else OnPoison.STOP,
        skip_damaged=skip_damaged,
        tombstones=True,
        commit_every=5.0 if chosen.group else None,
        on_assigned=keep_to_partition,
    ) as consumer:
        try:
            if chosen.partition is not None and chosen.offset is not None:
                _begin_at(consumer, topic, chosen.partition, chosen.offset)
            _print_messages(consumer, chosen, maximum, idle, format)
        except (DamagedBatchError, PoisonMessageError) as error:
            damaged = isinstance(error, DamagedBatchError)
            error.fix = (
                "restore the partition from a copy, or skip this batch alone with --skip-damaged"
                if damaged
                else "skip such messages with --skip-poison"
            )
            raise
        finally:
            _print_skipped(consumer.skipped, consumer.skipped_damaged)


def _print_skipped(poison: int, damaged: int) -> None:
    if poison:
        print_status(f"skipped {number_of(poison, 'message')} that could not be decoded")
    if damaged:
        print_status(f"skipped {number_of(damaged, 'offset')} of damaged batches")


def _start_of(text: str) -> Literal["earliest", "latest"] | datetime:
    """Return where `--from` begins. Raises UsageError."""
    if text in ("earliest", "latest"):
        return "earliest" if text == "earliest" else "latest"
    try:
        return datetime.fromtimestamp(parse_instant(text, "--from") / 1000, UTC)
    except UsageError:
        raise UsageError(
            f"--from {text!r} is none of these",
            fix="give earliest, latest, or a time such as 2026-05-01T12:00Z",
        ) from None


def _check_place(address: str, topic: str, partition: int | None, offset: int | None) -> None:
    """Raise UsageError for a topic, a partition, or an offset that does not exist."""
    from headworks._cli.broker_address import partition_offsets, topic_metadata

    found = topic_metadata(address, topic)
    if partition is None:
        return
    if partition not in found.partitions:
        raise UsageError(
            f"topic {topic} has no partition {partition}",
            fix=f"give 0 to {len(found.partitions) - 1}",
        )
    first, end = partition_offsets(address, topic, partition) if offset is not None else (0, 0)
    if offset is not None and not first <= offset <= end:
        raise UsageError(
            f"{topic} partition {partition} holds no offset {offset}",
            fix=f"give one from {first} to {end}, the next message's",
        )


def _begin_at(consumer: Consumer[Any], topic: str, partition: int, offset: int) -> None:
    """Wait for the partitions, and move one of them."""
    from consumer_sdk import Partition

    while not consumer.assignment:
        consumer.poll(0.1)
    consumer.rewind({Partition(topic, partition): offset})


def _print_messages(
    consumer: Consumer[Any],
    chosen: SelectionOptions,
    maximum: int | None,
    idle: float | None,
    format: Format,
) -> None:
    """Print messages until there are `maximum`, or none arrives for `idle` seconds."""
    printed, last = 0, time.monotonic()
    while maximum is None or printed < maximum:
        message = consumer.poll(0.5)
        if message is not None:
            last = time.monotonic()
            if chosen.includes(message):
                _print(message, format)
                printed += 1
        elif idle is not None and time.monotonic() - last > idle:
            break


def _print(message: Message[Any], format: Format) -> None:
    from consumer_sdk import Deleted
    from consumer_sdk._jsonable import to_jsonable
    from consumer_sdk._untyped_events import tagged

    found = None if isinstance(message.event, Deleted) else tagged(message.event)
    event = json.dumps(found, default=to_jsonable, ensure_ascii=False)
    if format is Format.TEXT:
        line = f"{message.partition}:{message.offset}\t{event}"
    else:
        line = json.dumps(
            {
                "topic": message.topic,
                "partition": message.partition,
                "offset": message.offset,
                "timestamp": message.timestamp,
                "key": _text(message.key),
                "headers": [[name, _text(value)] for name, value in message.headers],
                "schema_id": message.schema_id,
                "event": json.loads(event),
            },
            ensure_ascii=False,
        )
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


def _text(data: bytes | None) -> str | None:
    return None if data is None else data.decode(errors="replace")
