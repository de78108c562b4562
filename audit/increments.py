"""An increment: one decoded audit message.

Rules:

- Decoding is fast: logical types stay integers, because counts are summed and not shown.
- Our own schema must read that of a message under the policy `strict`. So a value has the type that
  it is used as, whoever wrote it.
- Any other message is a CorruptError with the reason, and the caller adds its position.
- A registry that refuses says nothing about the message, so it counts as unreachable: a wrong
  password must not make counts unreadable for ever. Only "no such schema" (40403) is an answer, and
  403 if the registry shows the schema of audit events: else one message could stop the audit.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from fastavro.schema import SchemaParseException

from headworks._audit_counting import AUDIT_TOPIC
from headworks._bundled_schemas import audit_schema
from headworks._decoding.plain_values import PlainDecoder
from headworks._wire import unframe
from headworks.compatibility import Policy, check_pair
from headworks.errors import CorruptError, HeadworksError, RefusedError, UnreachableError
from headworks.registry_client import SCHEMA_NOT_FOUND, RegistryClient
from headworks.schema import parse

_ID_SIZE = 16  # bytes
_FORBIDDEN_STATUS = 403


@dataclass(frozen=True, slots=True)
class CountedRange:
    """Offsets of one partition, from `first` to before `end`."""

    partition: int
    first: int
    end: int


@dataclass(frozen=True, slots=True)
class CountedSchema:
    """Messages of one schema: the id they were written with (None: no id), and that of the reader.

    `read` is 0 for a schema that the reader's registry does not have, and None without a reader's
    schema.
    """

    written: int | None
    read: int | None
    messages: int


@dataclass(frozen=True, slots=True)
class Increment:
    """The counts of one tier since its last report.

    `window_start` and `sent_at` are milliseconds since 1970 UTC. `counts` is by outcome. Only the
    loader sets `commit` and `ranges`. `schemas` is None if the tier did not count by schema.
    """

    id: str
    topic: str
    tier: str
    window_start: int
    counts: Mapping[str, int]
    bytes: int
    host: str
    application: str
    sent_at: int
    commit: int | None = None
    ranges: tuple[CountedRange, ...] = ()
    schemas: tuple[CountedSchema, ...] | None = None


class IncrementDecoder:
    """Decodes values of the audit topic with their writer's schemas."""

    def __init__(self, registry: RegistryClient) -> None:
        self._registry = registry
        self._own = parse(_plain(audit_schema()))
        # By schema id; or why messages of that schema are no audit events.
        self._decoders: dict[int, PlainDecoder | str] = {}

    def __call__(self, value: bytes) -> Increment:
        """Return the increment in a message.

        Raises CorruptError if it is none, and UnreachableError if the registry does not say.
        """
        try:
            schema_id, payload = unframe(value)
            decoder = self._decoders.get(schema_id)
            if decoder is None:
                text = self._registry.schema_text(schema_id)
                decoder = self._decoders[schema_id] = self._decoder(text)
            if isinstance(decoder, str):
                raise CorruptError(f"its schema {schema_id} is of something else: {decoder}")
            event: Any = decoder.decode(payload)
            ranges = event.get("ranges")
            return Increment(
                event["id"],
                event["topic"],
                event["tier"],
                event["window_start"],
                event["counts"],
                event["bytes"],
                event["host"],
                event["application"],
                event["sent_at"],
                event.get("load_number"),
                tuple(
                    CountedRange(one["partition_number"], one["first_offset"], one["end_offset"])
                    for one in ranges or ()
                ),
                _schemas(event.get("schemas")),
            )
        except UnreachableError:
            raise
        except RefusedError as error:
            if error.code != SCHEMA_NOT_FOUND and not self._is_of_others(error):
                raise UnreachableError(
                    f"the schema of a message of the audit topic is not known: {error.message}",
                    fix=error.fix,
                ) from error
            raise _no_event(error) from error
        except (HeadworksError, ValueError) as error:
            raise _no_event(error) from error

    def _decoder(self, text: str) -> PlainDecoder | str:
        try:
            plain = _plain(text)
            findings = check_pair(self._own, parse(plain, strict=False), Policy.STRICT)
            return findings[0].message if findings else PlainDecoder(plain)
        except (HeadworksError, SchemaParseException, ValueError) as error:
            return str(error)

    def _is_of_others(self, error: RefusedError) -> bool:
        """Return whether these credentials read audit events, and only this schema is refused."""
        if error.status != _FORBIDDEN_STATUS:
            return False
        try:
            own = self._registry.latest(f"{AUDIT_TOPIC}-value")
        except RefusedError:
            return False
        return own is not None or any(isinstance(d, PlainDecoder) for d in self._decoders.values())


def _no_event(error: Exception) -> CorruptError:
    return CorruptError(
        f"not an audit event: {error}", fix="only Headworks' own tiers may write to this topic"
    )


def _schemas(found: list[dict[str, Any]] | None) -> tuple[CountedSchema, ...] | None:
    if found is None:
        return None
    return tuple(CountedSchema(one["written"], one["read"], one["messages"]) for one in found)


def id_bytes(increment_id: str) -> bytes:
    """Return an id in 16 bytes: a UUID as our tiers write it, or the hash of any other text."""
    digits = increment_id.replace("-", "")
    if len(digits) == 2 * _ID_SIZE:
        with suppress(ValueError):  # as below, in a fifth of the time
            found = bytes.fromhex(digits)
            if len(found) == _ID_SIZE:  # white space would be skipped
                return found
    try:
        return uuid.UUID(increment_id).bytes
    except ValueError:
        return uuid.uuid5(uuid.NAMESPACE_OID, increment_id).bytes


def _plain(text: str) -> str:
    """Return a schema without logical types, so that timestamps stay integers."""
    return json.dumps(_without_logical_types(json.loads(text)))


def _without_logical_types(schema: Any) -> Any:
    if isinstance(schema, dict):
        kept = {key: value for key, value in schema.items() if key != "logicalType"}
        return {key: _without_logical_types(value) for key, value in kept.items()}
    if isinstance(schema, list):
        return [_without_logical_types(one) for one in schema]
    return schema
