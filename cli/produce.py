"""`headworks produce TOPIC`: send JSON lines from stdin as governed messages."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer

from headworks._cli.broker_address import bootstrap_servers, similar_names
from headworks._cli.options import BootstrapOption, RegistryOption
from headworks._cli.output import Format, FormatOption, number_of, print_json, print_status
from headworks._settings import resolve
from headworks.errors import FindingsError, UnreachableError, UsageError

if TYPE_CHECKING:
    from headworks.registry_client import SubjectVersion
    from producer_sdk import Producer


class _NoKeyError(UsageError):
    """A tombstone without a key: the command lacks an option."""


def produce(
    topic: Annotated[str, typer.Argument(help="the topic to produce to")],
    key: Annotated[
        str | None, typer.Option(help="give all messages this key (default: by the schema)")
    ] = None,
    header: Annotated[
        list[str] | None,
        typer.Option(help="give all messages this header, NAME=VALUE; repeat for more"),
    ] = None,
    bootstrap: BootstrapOption = None,
    registry: RegistryOption = None,
    format: FormatOption = Format.TEXT,
) -> None:
    """Read events from stdin, one JSON object per line, and send them in the latest schema.

    The line `null` is a tombstone, and needs --key.
    """
    from producer_sdk import Producer, WhenFull
    from producer_sdk._untyped import event_class

    headers = _headers(header or [])
    address = resolve("registry", registry)
    latest = _latest(address, topic)
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
                taken = _send(producer, event, json.loads(line), key, headers)
            except json.JSONDecodeError as error:
                raise FindingsError(f"line {number} is not JSON: {error}") from None
            except RecursionError:
                raise FindingsError(f"line {number} is nested too deeply") from None
            except _NoKeyError as error:
                raise UsageError(f"line {number}: {error.message}", fix=error.fix) from None
            except UsageError as error:
                raise FindingsError(f"line {number}: {error.message}", fix=error.fix) from None
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
        print_status(f"sent {number_of(sent, 'message')} to {topic}, version {latest.version}")


def _latest(registry: str, topic: str) -> SubjectVersion:
    """Return the latest schema of a topic. Raises UsageError if it has none."""
    from headworks.registry_client import RegistryClient
    from headworks.schema import subject_of

    client = RegistryClient(registry)
    latest = client.latest(subject_of(topic))
    if latest is None:
        topics = {subject.removesuffix("-value") for subject in client.subjects()}
        raise UsageError(
            f"topic {topic!r} has no schema in the registry at {registry}",
            fix=f"{similar_names(topic, topics)}register one with `headworks schema register`",
        )
    return latest


def _headers(pairs: list[str]) -> dict[str, bytes] | None:
    """Return the headers of `--header` options. Raises UsageError."""
    found = {}
    for pair in pairs:
        name, sign, value = pair.partition("=")
        if not sign or not name:
            raise UsageError(f"--header {pair!r} is no NAME=VALUE", fix="--header source=import")
        found[name] = value.encode()
    return found or None


def _send(
    producer: Producer,
    event: Any,
    value: object,
    key: str | None,
    headers: dict[str, bytes] | None,
) -> bool:
    """Send an event of these JSON values, or a tombstone for null.

    Raises UsageError for values of no event, and _NoKeyError for a tombstone without a key.
    """
    if value is not None:
        own_key = None if key is None else key.encode()
        return producer.send(event(value), key=own_key, headers=headers)
    if key is None:
        raise _NoKeyError("a tombstone deletes a key", fix="name it with --key")
    return producer.delete(event, key, headers=headers)
