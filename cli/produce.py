"""`headworks produce TOPIC`: send JSON lines from stdin as governed messages."""

from __future__ import annotations

import json
import sys
from typing import Annotated

import typer

from headworks._cli.broker_address import bootstrap_servers
from headworks._cli.options import BootstrapOption, RegistryOption
from headworks._cli.output import Format, FormatOption, print_json, print_status
from headworks._settings import resolve
from headworks.errors import HeadworksError, UnreachableError, UsageError

__all__ = ["produce"]


def produce(
    topic: Annotated[str, typer.Argument(help="the topic to produce to")],
    bootstrap: BootstrapOption = None,
    registry: RegistryOption = None,
    format: FormatOption = Format.TEXT,
) -> None:
    """Read events from stdin, one JSON object per line, and send them in the latest schema."""
    from headworks.registry_client import RegistryClient
    from headworks.schema import subject_of
    from producer_sdk import Producer, WhenFull
    from producer_sdk._untyped import event_class

    address = resolve("registry", registry)
    latest = RegistryClient(address).latest(subject_of(topic))
    if latest is None:
        raise UsageError(
            f"topic {topic!r} has no schema in the registry at {address}",
            fix="register one with `headworks schema register`",
        )
    event = event_class(topic, latest.text)
    sent = 0
    with Producer(
        bootstrap_servers(bootstrap),
        address,
        application="headworks-produce",
        events=(event,),
        when_full=WhenFull.BLOCK,
        block_ms=30_000,
    ) as producer:
        for number, line in enumerate(sys.stdin, 1):
            if not line.strip():
                continue
            try:
                taken = producer.send(event(json.loads(line)))
            except json.JSONDecodeError as error:
                raise UsageError(f"line {number} is not JSON: {error}") from None
            except HeadworksError as error:
                raise UsageError(f"line {number}: {error.message}", fix=error.fix) from None
            if not taken:
                raise UnreachableError(f"line {number}: the broker takes no more messages")
            sent += 1
        left = producer.flush(30)
    if left:
        raise UnreachableError(f"{left} of {sent} messages were not delivered")
    if format is Format.JSON:
        print_json(
            {"topic": topic, "sent": sent, "version": latest.version, "schema_id": latest.id}
        )
    else:
        print_status(f"sent {sent} messages to {topic}, version {latest.version}")
