"""The wire format of a governed message: magic byte 0, 4-byte big-endian schema id, Avro bytes.

This is Confluent's framing, so that their serializers and ours read each other. Rule: it is defined
here and nowhere else; the SDKs, the loader, and the console import it.
"""

from __future__ import annotations

import struct

from headworks.errors import HeadworksError

MAGIC = 0
HEADER_SIZE = 5
_HEADER = struct.Struct(">bI")


class FramingError(HeadworksError):
    """A message value that does not start with the magic byte and a schema id."""


def prefix(schema_id: int) -> bytes:
    """Return the 5 bytes that go before the Avro bytes of a message.

    Raises ValueError if `schema_id` does not fit in 4 bytes unsigned.
    """
    if not 0 <= schema_id <= 0xFFFF_FFFF:
        raise ValueError(f"schema id {schema_id} does not fit in 4 bytes")
    return _HEADER.pack(MAGIC, schema_id)


def unframe(value: bytes) -> tuple[int, bytes]:
    """Split a message value into (schema id, Avro bytes).

    Raises FramingError if the value is shorter than 5 bytes or its first byte is not 0.
    """
    if len(value) < HEADER_SIZE:
        raise FramingError(
            f"message value of {len(value)} bytes is too short for a schema id",
            fix="produce it with the Headworks SDK or a Confluent Avro serializer",
        )
    magic, schema_id = _HEADER.unpack_from(value)
    if magic != MAGIC:
        raise FramingError(
            f"message value starts with byte {value[0]}, not with the magic byte 0",
            fix="produce it with the Headworks SDK or a Confluent Avro serializer",
        )
    return schema_id, value[HEADER_SIZE:]
