"""Messages of the APIs that are not on the hot path, by kio's schemas.

Rules:

- The schema module of a version is imported when that version is first used.
- A reply is a mapping of field names, nested as the message is. Fields that the version lacks are
  dropped. A missing field takes the schema's default, and KeyError is raised if it has none.
- Requests come from strangers: `message_reader` reads them. Replies are ours: kio writes them.
"""

from __future__ import annotations

import dataclasses
import importlib
import io
import struct
import sys
import typing
from collections.abc import Callable, Mapping
from datetime import timedelta
from functools import cache
from typing import Any

from headworks._kafka.protocol.apis import Api
from headworks._kafka.protocol.frame import MalformedError
from headworks._kafka.protocol.message_reader import RequestBody, fields_of, message_reader
from headworks._kafka.protocol.oldest_versions import REPLIES, REQUESTS, SCHEMAS

Fields = Mapping[str, Any]
_NO_TIME = timedelta(0)


def decode(api: Api, version: int, body: bytes) -> Any:
    """Return the request in `body` as kio's dataclass for that version (see `oldest_versions`)."""
    schema, added = REQUESTS.get((api.key, version), (version, b""))
    body = RequestBody(body + added)
    ours = SCHEMAS.get((api.key, version))
    read = message_reader(ours or _entity(api.name, schema, "request"))
    try:
        message, position = read(body, 0)
    except (struct.error, IndexError, ValueError, OverflowError) as error:
        raise MalformedError(f"{api.name} v{version} does not parse: {error}") from None
    if position > len(body):
        raise MalformedError(f"{api.name} v{version} runs over the request")
    return message


def encode(api: Api, version: int, fields: Fields) -> bytes:
    """Return the body of a reply."""
    by_hand = REPLIES.get((api.key, version))
    if by_hand is not None:
        return by_hand(fields)
    kind, write = _writer(api.name, version)
    with io.BytesIO() as out:
        write(out, _build(kind, fields))
        return out.getvalue()


@cache
def _writer(name: str, version: int) -> tuple[type, Callable[[io.BytesIO, Any], None]]:
    kind = _entity(name, version, "response")
    write = _module_of_kio("kio.serial").entity_writer(kind)
    return kind, typing.cast(Callable[[io.BytesIO, Any], None], write)


@cache
def _entity(name: str, version: int, side: str) -> Any:
    module = _module_of_kio(f"kio.schema.{name}.v{version}.{side}")
    camel = "".join(word.capitalize() for word in name.split("_"))
    return getattr(module, f"{camel}{side.capitalize()}")


def _module_of_kio(name: str) -> Any:
    """Import a module of kio, without hypothesis.

    kio would load hypothesis where it is installed. That takes half of a broker's start, and leaves
    a folder `.hypothesis` where the broker was started.
    """
    if "kio.static" in sys.modules or "hypothesis" in sys.modules:
        return importlib.import_module(name)
    sys.modules["hypothesis"] = None  # type: ignore[assignment]
    try:
        return importlib.import_module(name)
    finally:
        del sys.modules["hypothesis"]


def _build(message: Any, fields: Fields) -> Any:
    given: dict[str, Any] = {}
    for field in fields_of(message):
        if field.name not in fields:
            if field.name == "throttle_time":
                given[field.name] = _NO_TIME
            elif field.default is dataclasses.MISSING:
                raise KeyError(f"{message.__qualname__} needs {field.name!r}")
            continue
        value = fields[field.name]
        if value is not None and field.array:
            nested = field.nested
            value = tuple(_build(nested, item) for item in value) if nested else tuple(value)
        elif value is not None and field.nested:
            value = _build(field.nested, value)
        given[field.name] = value
    return message(**given)
