"""A client of bare sockets: what the tests of single bytes and orders need."""

from __future__ import annotations

import importlib
import io
import socket
import struct
from typing import Any

from kio.serial import entity_reader, entity_writer

from headworks._kafka.protocol.apis import APIS, ApiKey
from headworks._kafka.protocol.frame import parse_header
from headworks._kafka.protocol.message_reader import fields_of
from headworks._kafka.protocol.produce import MatchedRequest, ProduceTemplate, parse_request
from tests.broker.clients import DEADLINE


class Wire:
    """One connection. Requests and replies are kio's messages."""

    def __init__(self, address: str, timeout: float = DEADLINE, source: str = "") -> None:
        host, _, port = address.rpartition(":")
        self.socket = socket.create_connection((host, int(port)), timeout, (source, 0))
        self._correlation = 0

    def __enter__(self) -> Wire:
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()

    def send(self, key: int, version: int, body: bytes) -> int:
        """Send a request; returns its correlation id."""
        self._correlation += 1
        head = struct.pack(">hhih", key, version, self._correlation, 4) + b"wire"
        flexible = key in APIS and APIS[key].is_flexible(version)
        frame = head + (b"\0" if flexible else b"") + body
        self.socket.sendall(struct.pack(">i", len(frame)) + frame)
        return self._correlation

    def receive(self) -> tuple[int, bytes]:
        """The next reply: correlation id, and the rest of the frame."""
        size = struct.unpack(">i", self._exactly(4))[0]
        frame = self._exactly(size)
        return struct.unpack_from(">i", frame)[0], frame[4:]

    def ask(self, key: int, version: int, /, **fields: Any) -> Any:
        """Send a request and read its reply as kio's message."""
        correlation = self.send(key, version, request(key, version, **fields))
        got, body = self.receive()
        assert got == correlation
        return reply(key, version, body)

    def closed(self) -> bool:
        """Whether the other side closes without another byte."""
        try:
            return self.socket.recv(1) == b""
        except ConnectionResetError:
            return True

    def silent(self, seconds: float = 0.3) -> bool:
        """Whether nothing comes for a while."""
        before = self.socket.gettimeout()
        self.socket.settimeout(seconds)
        try:
            self.socket.recv(1, socket.MSG_PEEK)
        except TimeoutError:
            return True
        finally:
            self.socket.settimeout(before)
        return False

    def _exactly(self, size: int) -> bytes:
        data = bytearray()
        while len(data) < size:
            piece = self.socket.recv(size - len(data))
            if not piece:
                raise EOFError(f"closed after {len(data)} of {size} bytes")
            data += piece
        return bytes(data)


def kind(key: int, version: int, side: str, name: str | None = None) -> Any:
    """One of kio's message classes."""
    api = APIS[key].name
    module = importlib.import_module(f"kio.schema.{api}.v{version}.{side}")
    camel = "".join(word.capitalize() for word in api.split("_"))
    return getattr(module, name or f"{camel}{side.capitalize()}")


def request(key: int, version: int, /, **fields: Any) -> bytes:
    """A request's body."""
    message = kind(key, version, "request")(**fields)
    with io.BytesIO() as out:
        entity_writer(type(message))(out, message)
        return out.getvalue()


def plain(message: Any) -> bytes:
    """A message whose schema is ours (`oldest_versions`): kio does not write it."""
    numbers = {"int32": ">i", "int64": ">q"}
    parts = []
    schema: Any = type(message)
    for field in fields_of(schema):
        value = getattr(message, field.name)
        if field.array:
            parts += [struct.pack(">i", len(value)), *map(plain, value)]
        elif field.kind in numbers:
            parts.append(struct.pack(numbers[field.kind], value))
        else:
            data = None if value is None else value.encode()
            parts.append(b"\xff\xff" if data is None else struct.pack(">h", len(data)) + data)
    return b"".join(parts)


def reply(key: int, version: int, body: bytes) -> Any:
    """A reply's message, from what follows the correlation id."""
    tags = APIS[key].is_flexible(version) and key != 18
    message, size = entity_reader(kind(key, version, "response"))(body[1 if tags else 0 :], 0)
    assert size == len(body) - (1 if tags else 0)
    return message


def produce(topic: str, partition: int, records: bytes | None, *, acks: int = 1) -> bytes:
    """The body of a produce request, version 7."""
    name = topic.encode()
    size = -1 if records is None else len(records)
    return (
        struct.pack(">hhiih", -1, acks, 5000, 1, len(name))
        + name
        + struct.pack(">iii", 1, partition, size)
        + (records or b"")
    )


def produced(body: bytes, topic: str) -> tuple[int, int]:
    """Error code and base offset of a produce reply, version 7."""
    error, offset = struct.unpack_from(">hq", body, 4 + 2 + len(topic) + 4 + 4)
    return error, offset


def fetch(
    topic: str,
    partition: int,
    offset: int,
    *,
    wait_ms: int = 0,
    min_bytes: int = 1,
    max_bytes: int = 1 << 20,
    session: tuple[int, int] = (0, -1),
    epoch: int = -1,
) -> bytes:
    """The body of a fetch request, version 11."""
    name = topic.encode()
    return (
        struct.pack(">iiiib", -1, wait_ms, min_bytes, max_bytes, 0)
        + struct.pack(">iiih", *session, 1, len(name))
        + name
        + struct.pack(">iiiqqi", 1, partition, epoch, offset, -1, max_bytes)
        + struct.pack(">ih", 0, 0)
    )


def fetched(body: bytes) -> tuple[int, int, bytes]:
    """Error code, high watermark and records of a fetch reply, version 11."""
    message = reply(ApiKey.FETCH, 11, body)
    if message.error_code:
        return int(message.error_code), -1, b""
    part = message.responses[0].partitions[0]
    return int(part.error_code), part.high_watermark, bytes(part.records or b"")


def agrees(template: ProduceTemplate, data: bytearray, found: MatchedRequest, start: int) -> bool:
    """Whether a request known as a repeat, at `start`, is what parsing finds there."""
    correlation, index, first, stop, after = found
    header = parse_header(data, start + 4, after)
    request = parse_request(data, header.body, after, header.version)
    known = (template.version, correlation, None, template.acks)
    part = (template.topic, index, first, stop)
    told = (header.version, header.correlation_id, request.transactional_id, request.acks)
    return (known, [part]) == (told, request.partitions) and after - start - 4 == int.from_bytes(
        data[start : start + 4], "big"
    )
