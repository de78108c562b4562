"""Requests for the fuzzer: valid ones of every served API and version, and ways to spoil them.

Rule: every choice comes from the random generator that is passed in.
"""

from __future__ import annotations

import dataclasses
import io
import struct
from datetime import timedelta
from random import Random
from typing import Any

from crc32c import crc32c
from kio.serial import entity_writer

from headworks._kafka.protocol.apis import Api, ApiKey
from headworks._kafka.protocol.message_reader import MessageField, fields_of
from headworks._kafka.protocol.oldest_versions import REQUESTS, SCHEMAS
from headworks._kafka.records import HEADER_SIZE, Record, encode_batch
from headworks._kafka.records.batch import HEADER
from headworks._kafka.records.varint import write_unsigned
from tests.broker.wire import kind, plain

TOPICS = ("fuzz-a", "fuzz-b", "fuzz-c", "unknown", "", ".", "x" * 249, "y" * 250, "a/b", "ü" * 90)
_WORDS = (
    "",
    "g",
    "group",
    "range",
    "consumer",
    "1",
    "retention.ms",
    "cleanup.policy",
    "\0",
    "w" * 300,
)
_LONGS = (-(1 << 63), -3, -2, -1, 0, 1, 2, 100, 1 << 31, 1_600_000_000_000, (1 << 63) - 1)
_INTS = (-(1 << 31), -2, -1, 0, 1, (1 << 31) - 1)
_VARINTS = (0, 1, 127, 128, 1 << 31, 1 << 32, 1 << 62)
_HEADER_BITS = (63, 31, 31, 7, 32, 15, 31, 63, 63, 63, 15, 31, 31)
_LIMITS = {"int8": 7, "int16": 15, "int32": 31, "int64": 63, "uint16": 16, "uint32": 32}
_WAITS = (0, 1, 20, 600, 1000)  # ms; long waits are tried by other proofs
_SPOILERS = 7


def versions(api: Api) -> range:
    """What may be asked of an API, the unserved old versions of Produce too."""
    return range(api.minimum, api.maximum + 1)


def random_request(api: Api, version: int, random: Random) -> bytes:
    """The body of a valid request: it parses; what it asks for may be impossible."""
    if api.key == 0 and version < 3:
        message = _message(kind(ApiKey.PRODUCE, 3, "request"), random)
        return _written(dataclasses.replace(message, transactional_id=None))[2:]
    if (api.key, version) in SCHEMAS:
        return plain(_message(SCHEMAS[api.key, version], random))
    schema, added = REQUESTS.get((api.key, version), (version, b""))
    body = _written(_message(kind(api.key, schema, "request"), random))
    return body[: len(body) - len(added)]


def frame(api: Api, version: int, correlation: int, body: bytes, client: bytes = b"fuzz") -> bytes:
    """A whole request with its header."""
    head = struct.pack(">hhih", api.key, version, correlation, len(client)) + client
    whole = head + (b"\0" if api.is_flexible(version) else b"") + body
    return struct.pack(">i", len(whole)) + whole


def spoil(data: bytes, random: Random) -> bytes:
    """Change a few things somewhere, as no client would."""
    out = bytearray(data)
    for _ in range(random.choice((1, 1, 1, 2, 3, 8))):
        _spoil_once(out, random)
    return bytes(out)


def _spoil_once(out: bytearray, random: Random) -> None:
    at, size = random.randint(0, len(out)), random.choice((1, 1, 2, 4, 8, 30))
    way = random.randrange(_SPOILERS)
    if way == 0:
        del out[at:]
    elif way == 1:
        del out[at : at + size]
    elif way == 2:
        out[at:at] = random.randbytes(size)
    elif way == 3:
        out[at : at + size] = out[at : at + size] * random.choice((2, 3, 50))
    elif way == 4 and out:
        out[at % len(out)] ^= 1 << random.randrange(8)
    elif way == 5:
        out[at : at + 4] = struct.pack(">i", random.choice(_INTS))
    else:
        out[at : at + 1] = write_unsigned(random.choice(_VARINTS))


def random_batch(random: Random) -> bytes:
    """A batch for a produce request: sound, or wrong in a field or in its records, CRC and all."""
    records = [
        Record(n, _small(random), random.choice((None, b"", b"key")), random.randbytes(20), ())
        for n in range(random.randint(1, 5))
    ]
    sequence = random.choice(((-1, -1, -1), (7, 0, 0), (7, 0, random.randrange(20)), (8, 3, 0)))
    data = bytearray(encode_batch(records, producer=sequence))
    if random.random() < 0.4:
        data[HEADER_SIZE:] = spoil(bytes(data[HEADER_SIZE:]), random)
    values = list(HEADER.unpack_from(data))
    values[1] = len(data) - 12
    if random.random() < 0.4:
        values[5] = random.choice((1, 2, 3, 4, 5, 7, 8, 16, 32, -1))  # codec, time, control
    if random.random() < 0.2:
        at = random.randrange(len(_HEADER_BITS))
        values[at] = _fit(random.choice(_LONGS), _HEADER_BITS[at])
    HEADER.pack_into(data, 0, *values)
    if random.random() < 0.9:
        struct.pack_into(">I", data, 17, crc32c(data[21:]))
    return bytes(data)


def _written(message: Any) -> bytes:
    with io.BytesIO() as out:
        entity_writer(type(message))(out, message)
        return out.getvalue()


def _message(of: Any, random: Random) -> Any:
    return of(**{field.name: _value(field, random) for field in fields_of(of)})


def _value(field: MessageField, random: Random) -> Any:
    if field.array:
        if field.nullable and random.random() < 0.2:
            return None
        one = field._replace(array=False, nullable=False)
        return tuple(_value(one, random) for _ in range(random.choice((0, 1, 1, 1, 2, 5))))
    if field.nested is not None:
        return _message(field.nested, random)
    if field.nullable and field.tag is None and random.random() < 0.3:
        return None
    return _scalar(field, random)


def _scalar(field: MessageField, random: Random) -> Any:
    name, of = field.name, field.kind
    if of == "string":
        topic = name in ("name", "topic", "topic_names", "resource_name")
        return random.choice(TOPICS if topic and random.random() < 0.9 else _WORDS)
    if of == "records":
        return random_batch(random)
    if of == "bytes":
        return random.randbytes(random.choice((0, 1, 10, 300)))
    if of == "bool":
        return random.random() < 0.5
    if of == "uuid":
        return None
    if of.startswith("timedelta"):
        return timedelta(milliseconds=random.choice(_WAITS))
    if name in ("acks", "required_acks"):
        return random.choice((-1, -1, 0, 1, 2))
    if name in ("max_bytes", "partition_max_bytes") and random.random() < 0.8:
        return 1 << 20
    value = random.choice(_LONGS) if random.random() < 0.2 else _small(random)
    return _fit(value, _LIMITS.get(of, 15))


def _small(random: Random) -> int:
    return random.choice((-1, 0, 0, 0, 1, 2, 3))


def _fit(value: int, bits: int) -> int:
    """The value, or the nearest that has so many bits (31 and the like leave one for the sign)."""
    low = 0 if bits in (16, 32) else -(1 << bits)
    return max(low, min(value, (1 << bits) - 1))
