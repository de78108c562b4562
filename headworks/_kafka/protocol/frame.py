"""Frames and request headers.

A frame is a 4-byte length and that many bytes. A request begins with API key, version, correlation
id, and client id. If the version is flexible, tagged fields follow, which are skipped. A reply
begins with the correlation id, and with an empty tag section if the version is flexible; only
ApiVersions replies never have one.

Rule: nothing here trusts a length. Bytes that do not fit raise `MalformedError`. So does an absurd
count that would fit, because handling it would keep the other clients waiting.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

from headworks._kafka.protocol.apis import APIS, Api, ApiKey
from headworks._kafka.records.batch import Buffer
from headworks._kafka.records.varint import read_unsigned
from headworks.errors import CorruptError

MAX_ARRAY_ELEMENTS = 20_000  # of one array in a request
MAX_REQUEST_ELEMENTS = 60_000  # of all its arrays together
_MAX_TAGS = 1000

_FIXED = struct.Struct(">hhih")
_LENGTH = struct.Struct(">i")
_REPLY = struct.Struct(">ii")


class MalformedError(CorruptError):
    """Bytes that are not a request of the protocol: the connection must be closed."""


class RequestHeader(NamedTuple):
    """A request's header, and where the request lies in the buffer."""

    key: int
    version: int
    correlation_id: int
    client_id: str | None
    start: int  # of the header, behind the length
    body: int  # where the body starts
    end: int


def parse_header(buffer: Buffer, position: int, end: int) -> RequestHeader:
    """Parse the header of the request at `position`..`end`. MalformedError if it does not fit.

    For an unknown API, or a version that is not served, `body` is where the client id ends.
    """
    try:
        key, version, correlation, size = _FIXED.unpack_from(buffer, position)
        body = position + _FIXED.size
        client_id = None
        if size >= 0:
            client_id = str(buffer[body : body + size], "utf-8", "replace")
            body += size
        api = APIS.get(key)
        if api is not None and api.flexible <= version <= api.maximum:
            body = skip_tags(buffer, body)
    except (struct.error, IndexError, ValueError, OverflowError) as error:
        raise MalformedError(f"request header does not parse: {error}") from None
    if body > end:
        raise MalformedError("request header runs over the request")
    return RequestHeader(key, version, correlation, client_id, position, body, end)


def skip_tags(buffer: Buffer, position: int) -> int:
    """Return the position after a section of tagged fields."""
    if buffer[position] == 0:
        return position + 1
    count, position = read_tag_count(buffer, position)
    for _ in range(count):
        _, position = read_unsigned(buffer, position)
        size, position = read_unsigned(buffer, position)
        position += size
        if position > len(buffer):
            raise MalformedError("tagged fields run over the request")
    return position


def read_tag_count(buffer: Buffer, position: int) -> tuple[int, int]:
    """Return the number of tagged fields, and the position after it."""
    count, position = read_unsigned(buffer, position)
    if count > _MAX_TAGS:
        raise MalformedError(f"{count} tagged fields are more than {_MAX_TAGS}")
    return count, position


def check_count(what: str, count: int) -> None:
    """Raise MalformedError for an array that no client needs so large."""
    if count > MAX_ARRAY_ELEMENTS:
        raise MalformedError(f"{count} {what} are more than {MAX_ARRAY_ELEMENTS}")


def seal(api: Api, version: int, correlation: int, body: bytes) -> bytes:
    """Return a reply frame: length, header, and body."""
    tags = b"\0" if api.is_flexible(version) and api.key != ApiKey.API_VERSIONS else b""
    return _REPLY.pack(4 + len(tags) + len(body), correlation) + tags + body
