"""TLS and SASL byte by byte: clients that are slow, too early, or speak something else."""

from __future__ import annotations

import base64
import contextlib
import hashlib
import hmac
import os
import socket
import ssl
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scramp import ScramClient

from headworks._broker.server.sasl import LoginError, ScramExchange, read_plain
from headworks._kafka.protocol import ErrorCode
from headworks._kafka.protocol.apis import SASL_APIS, ApiKey
from headworks._server import child_process
from headworks._server.security import Secret
from headworks._server.security.users import derive
from tests.broker.build import batch
from tests.broker.clients import DEADLINE, eventually
from tests.broker.conftest import start_broker
from tests.broker.secure import PASSWORDS, Files
from tests.broker.wire import Wire, fetch, fetched, produce, produced
from tests.waiting import within_some_time

pytestmark = pytest.mark.e2e

ALICE = b"\0alice\0" + PASSWORDS["alice"].encode()


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Files:
    return Files.make(tmp_path_factory.mktemp("files"))


@pytest.fixture(scope="module")
def guarded(
    files: Files, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[child_process.Service]:
    with start_broker(tmp_path_factory.mktemp("plain"), *files.user_options) as process:
        yield process


@pytest.fixture(scope="module")
def secret(
    files: Files, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[child_process.Service]:
    with start_broker(tmp_path_factory.mktemp("tls"), *files.tls_options) as process:
        yield process


def over_tls(address: str, files: Files, timeout: float = DEADLINE) -> Wire:
    """A wire over TLS."""
    wire = Wire(address, timeout)
    context = ssl.create_default_context(cafile=str(files.ca))
    wire.socket = context.wrap_socket(wire.socket, server_hostname="127.0.0.1")
    return wire


# -- TLS ---------------------------------------------------------------------------------------


def test_a_handshake_byte_by_byte_is_served_and_hurts_nobody(
    secret: child_process.Service, files: Files
) -> None:
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    context = ssl.create_default_context(cafile=str(files.ca))
    tls = context.wrap_bio(incoming, outgoing, server_hostname="127.0.0.1")
    with Wire(secret.address) as wire:
        done = False
        while not done:
            try:
                tls.do_handshake()
                done = True
            except ssl.SSLWantReadError:
                pass
            for byte in outgoing.read():
                wire.socket.sendall(bytes([byte]))
            with over_tls(secret.address, files) as other:
                assert other.ask(ApiKey.API_VERSIONS, 0).error_code == 0
            if not done:
                incoming.write(wire.socket.recv(1 << 16))
        assert tls.version() == "TLSv1.3"


def test_a_plaintext_client_on_a_tls_port_is_closed_with_a_hint(
    secret: child_process.Service, files: Files
) -> None:
    for data in (
        struct.pack(">ihhih", 10, 18, 0, 1, -1),
        b"GET / HTTP/1.1\r\n\r\n",
        os.urandom(200),
    ):
        with Wire(secret.address) as wire, over_tls(secret.address, files) as other:
            wire.socket.sendall(data)
            with contextlib.suppress(ConnectionResetError):
                while wire.socket.recv(100):
                    pass  # an alert of TLS
            assert other.ask(ApiKey.API_VERSIONS, 0).error_code == 0
    assert "a plaintext client?" in secret.words()


def test_a_tls_client_on_a_plaintext_port_is_closed_with_a_hint(
    guarded: child_process.Service, files: Files
) -> None:
    with pytest.raises(OSError, match=r".*"):
        over_tls(guarded.address, files)
    assert "a TLS client, and this is not TLS?" in guarded.words()


def test_old_tls_is_refused(secret: child_process.Service) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.set_ciphers("ALL:@SECLEVEL=0")
    with pytest.warns(DeprecationWarning, match="TLSv1_1"):
        context.maximum_version = ssl.TLSVersion.TLSv1_1
    with Wire(secret.address) as wire, pytest.raises(OSError, match=r"."):
        context.wrap_socket(wire.socket)


def test_much_data_both_ways_in_pieces_of_any_size(
    secret: child_process.Service, files: Files
) -> None:
    with over_tls(secret.address, files) as wire:
        assert wire.ask(ApiKey.METADATA, 5, topics=(), allow_auto_topic_creation=True) is not None
        from tests.broker.test_security_access import ASKED

        wire.ask(ApiKey.CREATE_TOPICS, 7, **ASKED[19]("much", "g")[1])
        sizes = (1, 100, 16_000, 16_384, 20_000, 300_000, 1_000_000)
        for number, size in enumerate(sizes):
            wire.send(ApiKey.PRODUCE, 7, produce("much", 0, bytes(batch(1, size=size)), acks=-1))
            assert produced(wire.receive()[1], "much") == (0, number)
        # many requests in one write: more than one TLS record holds
        body = produce("much", 0, bytes(batch(1, size=1000)), acks=-1)
        frame = struct.pack(">ihhih", 10 + len(body), 0, 7, 7, -1) + body
        wire.socket.sendall(frame * 300)
        for _ in range(300):
            assert wire.receive()[0] == 7
        wire.send(ApiKey.FETCH, 11, fetch("much", 0, 0, wait_ms=5000, max_bytes=1 << 23))
        error, high, records = fetched(wire.receive()[1])
    assert (error, high) == (0, len(sizes) + 300)
    assert len(records) > sum(sizes) + 300_000


def test_a_tls_client_that_does_not_read_is_held_in_bounds(
    secret: child_process.Service, files: Files
) -> None:
    import psutil

    with over_tls(secret.address, files) as writer:
        from tests.broker.test_security_access import ASKED

        writer.ask(ApiKey.CREATE_TOPICS, 7, **ASKED[19]("large", "g")[1])
        for _ in range(8):
            writer.send(
                ApiKey.PRODUCE, 7, produce("large", 0, bytes(batch(1, size=900_000)), acks=-1)
            )
            writer.receive()
    process = psutil.Process(secret.process.pid)
    with over_tls(secret.address, files) as wire:
        before = process.memory_info().rss
        body = fetch("large", 0, 0, max_bytes=1 << 23)
        frame = struct.pack(">ihhih", 10 + len(body), 1, 11, 1, -1) + body
        wire.socket.sendall(frame * 500)  # 4 GB of replies
        time.sleep(0.5)
        assert process.memory_info().rss - before < 20 << 20
        with over_tls(secret.address, files) as other:
            assert other.ask(ApiKey.API_VERSIONS, 0).error_code == 0
        for _ in range(20):
            assert len(fetched(wire.receive()[1])[2]) > 7_000_000


# -- SASL --------------------------------------------------------------------------------------


def test_sasl_is_advertised_only_where_there_are_users(
    guarded: child_process.Service, secret: child_process.Service, files: Files
) -> None:
    with Wire(guarded.address) as wire:
        assert {k.api_key for k in wire.ask(ApiKey.API_VERSIONS, 0).api_keys} >= SASL_APIS
    with over_tls(secret.address, files) as wire:
        assert not {k.api_key for k in wire.ask(ApiKey.API_VERSIONS, 0).api_keys} & SASL_APIS
        reply = wire.ask(ApiKey.SASL_HANDSHAKE, 1, mechanism="PLAIN")
        assert (reply.error_code, reply.mechanisms) == (ErrorCode.ILLEGAL_SASL_STATE, ())


@pytest.mark.parametrize("key", [0, 1, 3, 10, 11, 19])
def test_nothing_is_served_before_the_login(guarded: child_process.Service, key: int) -> None:
    with Wire(guarded.address) as wire:
        assert wire.ask(ApiKey.API_VERSIONS, 0).error_code == 0
        wire.send(key, 4, bytes(100))
        assert wire.closed()
    with Wire(guarded.address) as wire:  # nor behind the login, before it has succeeded
        wire.send(ApiKey.SASL_HANDSHAKE, 1, b"\0\5PLAIN")
        wire.send(key, 4, bytes(100))
        wire.receive()
        assert wire.closed()


@pytest.mark.parametrize("version", range(3))
def test_versions_of_authenticate(guarded: child_process.Service, version: int) -> None:
    with Wire(guarded.address) as wire:
        reply = wire.ask(ApiKey.SASL_HANDSHAKE, 1, mechanism="PLAIN")
        assert (reply.error_code, reply.mechanisms) == (0, ("PLAIN", "SCRAM-SHA-256"))
        reply = wire.ask(ApiKey.SASL_AUTHENTICATE, version, auth_bytes=ALICE)
        assert (reply.error_code, reply.error_message, reply.auth_bytes) == (0, None, b"")
        assert wire.ask(ApiKey.METADATA, 1, topics=()) is not None
        again = wire.ask(ApiKey.SASL_HANDSHAKE, 1, mechanism="PLAIN")
        assert again.error_code == ErrorCode.ILLEGAL_SASL_STATE
        assert wire.ask(ApiKey.API_VERSIONS, 0).error_code == 0, "which does not end the connection"


def test_handshakes_that_do_not_fit(guarded: child_process.Service) -> None:
    with Wire(guarded.address) as wire:
        reply = wire.ask(ApiKey.SASL_HANDSHAKE, 1, mechanism="GSSAPI")
        assert reply.error_code == ErrorCode.UNSUPPORTED_SASL_MECHANISM
        assert reply.mechanisms == ("PLAIN", "SCRAM-SHA-256")
        assert wire.closed()
    with Wire(guarded.address) as wire:
        assert (
            wire.ask(ApiKey.SASL_HANDSHAKE, 0, mechanism="PLAIN").error_code
            == ErrorCode.UNSUPPORTED_VERSION
        )
        assert wire.closed()
    with Wire(guarded.address) as wire:
        assert (
            wire.ask(ApiKey.SASL_AUTHENTICATE, 0, auth_bytes=ALICE).error_code
            == ErrorCode.ILLEGAL_SASL_STATE
        )
        assert wire.closed()
    with Wire(guarded.address) as wire:
        assert wire.ask(ApiKey.SASL_HANDSHAKE, 1, mechanism="PLAIN").error_code == 0
        assert (
            wire.ask(ApiKey.SASL_HANDSHAKE, 1, mechanism="PLAIN").error_code
            == ErrorCode.ILLEGAL_SASL_STATE
        )
        assert wire.closed()


@pytest.mark.parametrize(
    "token",
    [
        b"\0alice\0wrong",
        b"\0nobody\0x",
        b"bob\0alice\0" + PASSWORDS["alice"].encode(),
        b"",
        b"\0alice",
        b"\0\xff\0x",
        b"\0alice\0",
    ],
)
def test_a_wrong_password_is_answered_late_and_alike_and_blocks_nobody(
    guarded: child_process.Service, token: bytes
) -> None:

    def others_come_first() -> bool:
        """Not if this process stands still for longer than the refusal is kept back."""
        with Wire(guarded.address) as wire, Wire(guarded.address) as other:
            wire.ask(ApiKey.SASL_HANDSHAKE, 1, mechanism="PLAIN")
            began = time.monotonic()
            correlation = wire.send(
                ApiKey.SASL_AUTHENTICATE, 0, struct.pack(">i", len(token)) + token
            )
            other.ask(ApiKey.SASL_HANDSHAKE, 1, mechanism="PLAIN")
            assert other.ask(ApiKey.SASL_AUTHENTICATE, 0, auth_bytes=ALICE).error_code == 0
            first = wire.silent(0.001)
            got, body = wire.receive()
            assert got == correlation
            assert struct.unpack_from(">h", body) == (ErrorCode.SASL_AUTHENTICATION_FAILED,)
            assert b"name and password do not fit" in body
            assert time.monotonic() - began >= 0.9
            assert wire.closed()
            return first

    eventually(others_come_first)


def test_a_request_before_the_login_is_small(guarded: child_process.Service) -> None:
    with Wire(guarded.address) as wire:
        wire.socket.sendall(struct.pack(">ihhih", 1 << 20, 36, 0, 1, -1))
        assert wire.closed()


def test_passwords_are_never_logged(guarded: child_process.Service) -> None:
    with Wire(guarded.address) as wire:
        wire.ask(ApiKey.SASL_HANDSHAKE, 1, mechanism="PLAIN")
        wire.ask(ApiKey.SASL_AUTHENTICATE, 0, auth_bytes=b"\0alice\0neither-this-one")
    text = guarded.words()
    assert "login of 'alice' by PLAIN failed: wrong name or password" in text
    assert "neither-this-one" not in text
    assert PASSWORDS["alice"] not in text


# -- the exchange by itself --------------------------------------------------------------------

SECRET = derive("pencil", b"salt of twenty-four byte", 4096)


def exchange(client: ScramClient, secret: Secret | None = SECRET) -> str:
    server = ScramExchange(lambda name: secret if name == "user" else None)
    first, done = server.step(client.get_client_first().encode())
    assert not done
    client.set_server_first(first.decode())
    final, done = server.step(client.get_client_final().encode())
    assert done
    client.set_server_final(final.decode())  # which checks the server's signature
    return server.name


@given(st.text(alphabet=st.characters(codec="ascii", categories=["L", "N", "P"]), min_size=1))
def test_an_independent_client_is_let_in_by_its_password_alone(password: str) -> None:
    secret = derive(password, b"salt of twenty-four byte", 4096)
    assert exchange(ScramClient(["SCRAM-SHA-256"], "user", password), secret) == "user"
    for name, wrong in (("user", password + "x"), ("nobody", password)):
        with pytest.raises(LoginError):
            exchange(ScramClient(["SCRAM-SHA-256"], name, wrong), secret)


def test_the_example_of_rfc_7677() -> None:
    salt = base64.b64decode("W22ZaJ0SNY7soEsUEjb6gQ==")
    server = ScramExchange(
        lambda _: derive("pencil", salt, 4096), lambda: "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"
    )
    first, _ = server.step(b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO")
    assert first == (
        b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
    )
    final, done = server.step(
        b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,"
        b"p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
    )
    assert (final, done) == (b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=", True)


def test_nobodys_salt_does_not_change() -> None:
    def salt(name: str) -> bytes:
        first, _ = ScramExchange(lambda _: None).step(f"n,,n={name},r=x".encode())
        return first.partition(b",s=")[2]

    assert salt("ghost") == salt("ghost") != salt("spook")


@pytest.mark.parametrize(
    ("first", "final"),
    [
        (b"p=tls-unique,,n=user,r=x", b""),
        (b"n,,m=must,n=user,r=x", b""),
        (b"n,a=bob,n=user,r=x", b""),
        (b"n,,n=user", b""),
        (b"\xff", b""),
        (b"", b""),
        (b"n,,n=user,r=x", b"c=eSws,r=%s,p=AAAA"),
        (b"n,,n=user,r=x", b"c=biws,r=y,p=AAAA"),
        (b"n,,n=user,r=x", b"c=biws,r=%s"),
        (b"n,,n=user,r=x", b"c=biws,r=%s,p=!"),
        (b"n,,n=user,r=x", b"c=biws,r=%s,p="),
        (b"n,,n=user,r=x", b"c=biws,r=%s,p=" + base64.b64encode(bytes(32))),
    ],
)
def test_messages_that_do_not_fit(first: bytes, final: bytes) -> None:
    server = ScramExchange(lambda _: SECRET)

    def run() -> None:
        answer, _ = server.step(first)
        nonce = answer[2:].partition(b",")[0]
        server.step(final.replace(b"%s", nonce))

    with pytest.raises(LoginError):
        run()


def test_a_proof_with_more_behind_it_is_refused() -> None:
    server = ScramExchange(lambda _: SECRET)
    first, _ = server.step(b"n,,n=user,r=x")
    nonce = first[2:].partition(b",")[0].decode()
    unsigned = f"c=biws,r={nonce}"
    signed = f"n=user,r=x,{first.decode()},{unsigned}".encode()
    salted = hashlib.pbkdf2_hmac("sha256", b"pencil", SECRET.salt, SECRET.iterations)
    key = hmac.digest(salted, b"Client Key", "sha256")
    signature = hmac.digest(SECRET.stored_key, signed, "sha256")
    proof = bytes(a ^ b for a, b in zip(key, signature, strict=True))
    longer = base64.b64encode(proof + b"\0").decode()
    with pytest.raises(LoginError):
        server.step(f"{unsigned},p={longer}".encode())


@given(st.binary(max_size=60))
def test_any_bytes_are_a_login_error_and_no_other(token: bytes) -> None:
    for step in (read_plain, lambda t: ScramExchange(lambda _: SECRET).step(t)):
        with contextlib.suppress(LoginError):
            step(token)


# -- the address -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ([], "--users"),
        (["tls"], "--users"),
        (["users"], "has no TLS"),
        (["users", "half"], "TLS needs two files"),
        (["users", "tls", "metrics"], "cannot listen on"),
        (["users", "tls"], "cannot listen on"),  # it may, if the machine had that address
        (["--insecure"], "cannot listen on"),
    ],
)
def test_beyond_loopback_there_must_be_users_and_tls(
    files: Files, tmp_path: Path, options: list[str], words: str
) -> None:
    meant = {
        "tls": files.tls_options,
        "users": files.user_options,
        "half": ["--tls-cert", str(files.certificate)],
        "metrics": ["--metrics", "192.0.2.1:0"],
    }
    arguments = [part for option in options for part in meant.get(option, [option])]
    done = subprocess.run(
        [
            *(
                sys.executable,
                "-P",
                "-m",
                "headworks._cli",
                "broker",
                "start",
                "--data-dir",
                str(tmp_path),
            ),
            *("--listen", "192.0.2.1:9092", *arguments),
        ],
        capture_output=True,
        text=True,
        timeout=DEADLINE,
    )
    assert done.returncode == 2
    assert words in done.stderr


def test_metrics_beyond_loopback_are_guarded_too(files: Files, tmp_path: Path) -> None:
    done = subprocess.run(
        [
            *(
                sys.executable,
                "-P",
                "-m",
                "headworks._cli",
                "broker",
                "start",
                "--data-dir",
                str(tmp_path),
            ),
            *("--listen", "127.0.0.1:0", "--metrics", "192.0.2.1:0"),
        ],
        capture_output=True,
        text=True,
        timeout=DEADLINE,
    )
    assert done.returncode == 2
    assert "metrics page" in done.stderr


def test_setting_up_has_a_time_limit(files: Files, tmp_path: Path) -> None:
    """In this process, so that the limit can be short."""
    import asyncio

    from headworks._broker.server import BrokerServer, ServerConfig
    from headworks._broker.server.limits import ClientLimits
    from headworks._server.security import Users, server_tls

    def check(seconds: float) -> None:
        try:
            asyncio.run(run(seconds))
        except OSError as error:  # the time was over in the middle of a handshake
            raise AssertionError from error

    async def run(seconds: float) -> None:
        limits = ClientLimits(setup_seconds=seconds, max_connections=2)
        tls = server_tls(files.certificate, files.key)
        folder = tmp_path / f"{seconds}"
        config = ServerConfig(folder, limits=limits, tls=tls, users=Users(files.users))
        server = BrokerServer(config)
        await server.start()
        host, _, port = server.address.rpartition(":")
        try:
            with socket.create_connection((host, int(port))) as silent:  # no handshake at all
                context = ssl.create_default_context(cafile=str(files.ca))
                _, writer = await asyncio.open_connection(
                    host, int(port), ssl=context, server_hostname="127.0.0.1"
                )  # a handshake, and no login
                try:
                    third = await asyncio.to_thread(_is_closed, (host, int(port)))
                    assert third, "handshakes count as connections"
                    assert await asyncio.to_thread(silent.recv, 1) == b""
                    async with asyncio.timeout(DEADLINE):
                        while server.connections:
                            await asyncio.sleep(0.01)
                    failed = server.node.counters.failed
                    assert (failed["tls"], failed["login"]) == (1, 1)
                finally:
                    writer.close()
                    with contextlib.suppress(OSError):
                        await writer.wait_closed()
        finally:
            await server.stop()

    before = threading.active_count()
    within_some_time(check, 3.0, 15.0)
    assert threading.active_count() < before + 20


def _is_closed(address: tuple[str, int]) -> bool:
    with socket.create_connection(address, DEADLINE) as sock:
        try:
            return sock.recv(1) == b""
        except ConnectionResetError:
            return True
