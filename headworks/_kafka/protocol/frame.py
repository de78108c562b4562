"""Frames and request headers.

A frame is a 4-byte length and that many bytes. A request opens with api key, version, correlation
id and client id; where the API's version is flexible, tagged fields follow, which are skipped.
A reply opens with the correlation id, and an empty tag section where flexible; only ApiVersions
replies never have one.

Rule: nothing here trusts a length; whatever does not fit raises `MalformedError`. So does a count
that fits and is absurd: working through it would keep everybody else waiting.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

from headworks._kafka.protocol.apis import APIS, Api, ApiKey
from headworks._kafka.records.batch import Buffer
from headworks._kafka.records.varint import read_unsigned
from headworks.errors import CorruptError

__all__ = [
    "MAX_ARRAY_ELEMENTS",
    "MAX_REQUEST_ELEMENTS",
    "MalformedError",
    "RequestHeader",
    "check_count",
    "parse_header",
    "read_tag_count",
    "seal",
    "skip_tags",
]

MAX_ARRAY_ELEMENTS = 20_000  # of an array in a request
MAX_REQUEST_ELEMENTS = 60_000  # of all its arrays, however they are nested
_MOST_TAGS = 1000

_FIXED = struct.Struct(">hhih")
_LENGTH = struct.Struct(">i")
_REPLY = struct.Struct(">ii")


class MalformedError(CorruptError):
    """Bytes that are not a request of the protocol; the connection must be closed."""


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
    """Read the header of the request that lies at `position`..`end`.

    For an unknown API, or a version that is not served, `body` is where the client id ends.
    """
    try:
        key, version, correlation, size = _FIXED.unpack_from(buffer, position)
        body = position + _FIXED.size
        client_id = None
        if size >= 0:
            client_id = str(buffer[body : body + size], "utf-8")
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
    """The position after a section of tagged fields."""
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
    """How many tagged fields follow."""
    count, position = read_unsigned(buffer, position)
    if count > _MOST_TAGS:
        raise MalformedError(f"{count} tagged fields are more than {_MOST_TAGS}")
    return count, position


def check_count(what: str, count: int) -> None:
    """MalformedError for an array that nobody needs so large."""
    if count > MAX_ARRAY_ELEMENTS:
        raise MalformedError(f"{count} {what} are more than {MAX_ARRAY_ELEMENTS}")


def seal(api: Api, version: int, correlation: int, body: bytes) -> bytes:
    """A reply frame: length, header and body."""
    tags = b"\0" if api.is_flexible(version) and api.key != ApiKey.API_VERSIONS else b""
    return _REPLY.pack(4 + len(tags) + len(body), correlation) + tags + body
