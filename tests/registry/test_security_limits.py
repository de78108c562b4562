"""Requests of any size: a clean answer, bounded work, and an error that names the limit.

Work is the processor time of the server: what else the machine has to do is not its fault.
"""

from __future__ import annotations

import asyncio
import json
import socket
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Literal

import pytest
import uvicorn

from bench.processes import Usage
from headworks._registry.model.refusals import ServiceError
from headworks._registry.model.schema_limits import SchemaLimits
from headworks._registry.service import middleware
from headworks._registry.service.app import create_app
from headworks._registry.store import RegistryStore
from headworks._server import child_process, http_connection
from headworks._server.http_connection import MAX_HEAD_BYTES
from headworks.registry_client import RegistryClient
from tests.registry.guarding import As, start
from tests.registry.rest import Reply, fresh, text_of

pytestmark = pytest.mark.e2e

Json = object


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[child_process.Service]:
    with start(tmp_path_factory.mktemp("limits")) as one:
        yield one


def nested_records(depth: int) -> Json:
    inner: Json = "int"
    for level in range(depth):
        inner = {"type": "record", "name": f"R{level}", "fields": [{"name": "f", "type": inner}]}
    return inner


def nested_arrays(depth: int) -> Json:
    inner: Json = "int"
    for _ in range(depth):
        inner = {"type": "array", "items": inner}
    return inner


def deep_text(opening: str, closing: str, depth: int) -> str:
    return opening * depth + '"int"' + closing * depth


def wide(fields: int) -> Json:
    listed = [{"name": f"f{n}", "type": "int"} for n in range(fields)]
    return {"type": "record", "name": "Wide", "fields": listed}


LARGE: dict[str, tuple[str, int]] = {
    "records": (text_of(nested_records(101)), 42209),
    "arrays": (text_of(nested_arrays(101)), 42209),
    "many records": (text_of(nested_records(200)), 42209),
    "arrays without end": (deep_text('{"type":"array","items":', "}", 20_000), 42201),
    "unions without end": (deep_text("[", "]", 50_000), 42201),
    "unions": (deep_text("[", "]", 150), 42209),
    "fields": (text_of(wide(10_001)), 42209),
    "a name": (text_of({"type": "fixed", "size": 1, "name": "n" * 1001}), 42209),
    "an escaped name": (
        text_of({"type": "fixed", "size": 1, "name": 'n"' * 600}),
        42209,
    ),
    "a symbol": (text_of({"type": "enum", "name": "E", "symbols": ["s" * 1001]}), 42209),
    "characters": ('"' + " " * 1_000_000 + 'int"', 42209),
    "a deep attribute": (
        '{"type":"int","x":' + "[" * 900 + "]" * 900 + "}",
        42209,
    ),
    "a deeper attribute": ('{"type":"int","x":' + "[" * 9000 + "]" * 9000 + "}", 42201),
    "a deep default": (
        '{"type":"record","name":"R","fields":[{"name":"f","type":"int","default":'
        + '{"a":' * 800
        + "1"
        + "}" * 800
        + "}]}",
        42209,
    ),
    "a long number": ('{"type":"fixed","name":"F","size":' + "9" * 5000 + "}", 42201),
    "wrapped types": (deep_text('{"type":', "}", 800), 42209),
}


@pytest.mark.parametrize("name", LARGE)
def test_a_schema_that_is_too_large(running: child_process.Service, name: str) -> None:
    ask, server = As(running.url, {}), Usage(running.process.pid)
    text, code = LARGE[name]
    before = server.now().cpu
    for path in ("/subjects/s/versions", "/compatibility/subjects/s/versions"):
        reply = ask("POST", path, {"schema": text})
        assert (reply.status, reply.code) == (422, code), reply
        assert len(reply.body["message"]) < 1000
    assert server.now().cpu - before < 10


LARGEST: dict[str, Json] = {
    "records": nested_records(100),
    "arrays": nested_arrays(100),
    "fields": wide(10_000),
    "a name": {"type": "fixed", "size": 1, "name": "n" * 1000},
    "an attribute": {"type": "int", "x": json.loads("[" * 90 + "]" * 90)},
    "unions": nested_records(49),
}


@pytest.mark.parametrize("name", LARGEST)
def test_a_schema_that_just_fits(running: child_process.Service, name: str) -> None:
    ask, subject = As(running.url, {}), fresh()
    text = text_of(LARGEST[name])
    for query in ("", "?normalize=true"):
        reply = ask("POST", f"/subjects/{subject}/versions{query}", {"schema": text})
        assert reply.status == 200, reply
    for path in (f"/subjects/{subject}/versions/1", f"/schemas/ids/{reply.body['id']}"):
        assert ask("GET", path).status == 200
    assert ask("GET", f"/subjects/{subject}/diff/1/1").status == 200
    check = f"/compatibility/subjects/{subject}/versions?verbose=true"
    assert ask("POST", check, {"schema": text}).body["is_compatible"]


def test_hostile_repetition_takes_bounded_work(running: child_process.Service) -> None:
    """A large type used, and said again, in very many places."""
    large = wide(500)
    again = [{"name": f"u{n}", "type": "Wide"} for n in range(5000)]
    uses = {
        "type": "record",
        "name": "Uses",
        "fields": [{"name": "first", "type": large}, *again],
    }
    small = {"type": "record", "name": "S", "fields": [{"name": "w", "type": "Wide"}]}
    twice = [{"name": f"s{n}", "type": small} for n in range(5000)]
    says = {"type": "record", "name": "Says", "fields": [{"name": "w", "type": large}, *twice]}
    ask, server = As(running.url, {}), Usage(running.process.pid)
    for schema in (uses, says):
        before = server.now().cpu
        reply = ask("POST", f"/subjects/{fresh()}/versions", {"schema": text_of(schema)})
        assert reply.status in (200, 422), reply
        assert server.now().cpu - before < 15


def test_limits_are_options(tmp_path: Path) -> None:
    options = [
        "--max-schema-depth=2",
        "--max-schema-fields=3",
        "--max-schema-length=400",
        "--max-request-bytes=2000",
    ]
    with start(tmp_path, *options) as running:
        ask = As(running.url, {})

        def register(schema: Json) -> Reply:
            return ask("POST", f"/subjects/{fresh()}/versions", {"schema": text_of(schema)})

        assert register(nested_arrays(2)).status == 200
        assert "more than 2 deep" in register(nested_arrays(3)).body["message"]
        assert register(wide(3)).status == 200
        assert "more than 3 fields" in register(wide(4)).body["message"]
        assert "the limit is 400" in register({"type": "int", "x": "y" * 400}).body["message"]
        reply = register({"type": "int", "x": "y" * 2000})
        assert (reply.status, reply.code) == (413, 413)


def test_a_schema_within_its_limits_is_no_error() -> None:
    limits = SchemaLimits()
    for text in ("", "not json", '"int"', "3", "null", "[]", '{"fields": 3}', '{"fields": [3]}'):
        limits.check(text)
    with pytest.raises(ServiceError, match="more than 1 fields"):
        SchemaLimits(fields=1).check(text_of({"type": "array", "items": wide(2)}))


def exchange(address: str, *parts: bytes) -> bytes:
    """Send parts, and return what comes until the server ends it."""
    with connect(address) as caller:
        with suppress(BrokenPipeError, ConnectionResetError):  # it has answered, and heard enough
            for part in parts:
                caller.sendall(part)
        return received(caller)


def connect(address: str) -> socket.socket:
    host, _, port = address.partition(":")
    return socket.create_connection((host, int(port)), 60)


def received(caller: socket.socket) -> bytes:
    """What comes until the server ends it, or has given a whole head and means to go on."""
    found = b""
    with suppress(ConnectionResetError):
        while chunk := caller.recv(65536):
            found += chunk
            if b"\r\n\r\n" in found and b"connection: close" not in found.lower():
                break
    return found


def chunked(size: int) -> Iterator[bytes]:
    head = b"POST /subjects/s/versions HTTP/1.1\r\nHost: localhost\r\n"
    yield head + b"Transfer-Encoding: chunked\r\n\r\n"
    chunk = b" " * 65_536
    for _ in range(size // len(chunk) + 1):
        yield b"%x\r\n%b\r\n" % (len(chunk), chunk)
    yield b"0\r\n\r\n"


def test_a_body_without_a_length_is_counted(running: child_process.Service) -> None:
    answer = exchange(running.address, *chunked(5_000_000))
    assert answer.startswith(b"HTTP/1.1 413")


@pytest.mark.parametrize(
    "head",
    [
        b"GET /" + b"x" * (MAX_HEAD_BYTES + 70_000),
        b"GET / HTTP/1.1\r\nx: " + b"y" * (MAX_HEAD_BYTES + 200_000),
        b"GET / HTTP/1.1\r\n" + b"x: y\r\n" * 60_000,
    ],
)
def test_a_head_without_end_is_ended(running: child_process.Service, head: bytes) -> None:
    answer = exchange(running.address, head)
    assert answer[:12] in (b"HTTP/1.1 431", b"HTTP/1.1 400", b"")
    assert As(running.url, {})("GET", "/health").status == 200


def test_a_slow_head_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_connection, "HEAD_SECONDS", 0.3)

    async def app(scope: object, receive: object, send: Callable[..., object]) -> None:
        raise AssertionError("no request comes this far")

    answer, silence = asyncio.run(answers(app, [b"GET / HTTP/1.1\r\nx: ", b""]))
    assert answer.startswith(b"HTTP/1.1 408")
    assert b'"error_code": 408' in answer
    assert silence == b""


def test_a_slow_body_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One of which a part is here, one of which nothing is, and one that ends with its head."""
    monkeypatch.setattr(middleware, "_BODY_SECONDS", 0.3)
    app = create_app(RegistryStore(f"sqlite:///{tmp_path}/registry.db"))
    head = (
        b"POST /subjects/s/versions HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n"
        b"content-type: application/json\r\ncontent-length: 2\r\n\r\n"
    )
    part, none, whole = asyncio.run(answers(app, [head + b"{", head, head + b"{}"], lifespan="on"))
    for slow in (part, none):
        assert slow.startswith(b"HTTP/1.1 408")
        assert b"the request's body did not arrive within" in slow
    assert whole.startswith(b"HTTP/1.1 422")


async def answers(
    app: Callable[..., object], sent: Sequence[bytes], *, lifespan: Literal["on", "off"] = "off"
) -> list[bytes]:
    """Serve connections that send this and then wait; return what each receives."""
    config = uvicorn.Config(
        app,
        http=http_connection.BoundedConnection,
        ws="none",
        lifespan=lifespan,
        port=0,
        log_config=None,
    )
    server = uvicorn.Server(config)
    with ExitStack() as open_ones:
        listening = open_ones.enter_context(socket.create_server(("127.0.0.1", 0)))
        address = f"127.0.0.1:{listening.getsockname()[1]}"
        connections = [open_ones.enter_context(connect(address)) for _ in sent]
        # It lies there before the server does, so the server reads it before time is over.
        for one, data in zip(connections, sent, strict=True):
            one.sendall(data)
        serving = asyncio.create_task(server.serve([listening]))
        found = [await asyncio.to_thread(received, one) for one in connections]
        server.should_exit = True
        await serving
    return found


def test_connections_above_the_limit_get_a_503(tmp_path: Path) -> None:
    """503, which every client repeats; when one has gone there is a place again."""
    with start(tmp_path, "--max-connections=2") as one:
        held = [connect(one.address) for _ in range(2)]
        assert As(one.url, {})("GET", "/subjects").status == 503
        pauses = []

        def free_the_places(seconds: float) -> None:
            pauses.append(seconds)
            for sock in held:
                sock.close()
            time.sleep(seconds)

        assert RegistryClient(one.url, sleep=free_the_places).subjects() == []
        assert pauses
