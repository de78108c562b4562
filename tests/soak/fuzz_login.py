"""Fuzzing what comes before a login: TLS handshakes and SASL, while somebody who is let in works.

The broker has TLS and users. The attackers spoil the first bytes of TLS, or come through TLS and
spoil every step of the login; nobody of them knows a password. The canary does.
"""

from __future__ import annotations

import contextlib
import socket
import ssl
import struct
from pathlib import Path
from random import Random

from headworks._kafka.protocol.apis import APIS
from tests.broker.secure import PASSWORDS, Files
from tests.broker.wire import Wire, request
from tests.soak.process import Broker
from tests.soak.requests import frame, random_request, spoil
from tests.soak.siege import CANARY, SECONDS, Report, besiege

_HANDSHAKE, _AUTHENTICATE, _VERSIONS, _METADATA, _CREATE_TOPICS = 17, 36, 18, 3, 19
_LEAST = {"spoiled handshakes": 6, "spoiled logins": 3, "songs of the canary": 6}
_TOKENS = (
    b"\0alice\0wrong",
    b"\0\0",
    b"n,,n=alice,r=abcdef",
    b"n,,n=nobody,r=abcdef",
    b"c=biws,r=abcdef,p=AAAA",
    b"y,a=bob,n=alice,r=" + b"x" * 5000,
)


class LoggedIn(Wire):
    """A connection through TLS and a login."""

    def __init__(self, address: str, files: Files) -> None:
        super().__init__(address, SECONDS)
        context = ssl.create_default_context(cafile=str(files.ca))
        self.socket = context.wrap_socket(self.socket, server_hostname="127.0.0.1")
        assert self.ask(_HANDSHAKE, 1, mechanism="PLAIN").error_code == 0
        token = b"\0alice\0" + PASSWORDS["alice"].encode()
        assert self.ask(_AUTHENTICATE, 1, auth_bytes=token).error_code == 0


def fuzz_login(folder: Path, seconds: float, seed: int) -> Report:
    """Attack a guarded broker for so long."""
    files = Files.make(folder / "files")
    context = ssl.create_default_context(cafile=str(files.ca))
    hello = _hello(context)
    broker = Broker(folder, *files.tls_options, *files.user_options, "--default-partitions", "1")
    broker.start()

    def attack(random: Random, report: Report) -> None:
        _attack(broker.address, context, hello, random, report)

    with LoggedIn(broker.address, files) as wire:
        wire.send(_METADATA, 4, _metadata(CANARY))  # creates it
        wire.receive()
        return besiege(broker, wire, attack, seconds, seed, _LEAST)


def _metadata(topic: str) -> bytes:
    name = topic.encode()
    return struct.pack(">ih", 1, len(name)) + name + b"\1"


def _attack(
    address: str, context: ssl.SSLContext, hello: bytes, random: Random, report: Report
) -> None:
    host, _, port = address.rpartition(":")
    try:
        with socket.create_connection((host, int(port)), SECONDS) as sock:
            if random.random() < 0.5:
                _hurt(sock, spoil(hello, random), report)
                report.counts["spoiled handshakes"] += 1
                return
            with context.wrap_socket(sock, server_hostname="127.0.0.1") as secure:
                _hurt(secure, _login(random), report)
            report.counts["spoiled logins"] += 1
    except OSError:
        report.counts["connections reset"] += 1


def _hurt(sock: socket.socket, data: bytes, report: Report) -> None:
    """Send it and go on until the other side ends; it must, as we say that we have ended."""
    try:
        sock.sendall(data)
        sock.settimeout(0.02)
        with contextlib.suppress(TimeoutError):
            while sock.recv(1 << 16):
                pass
        sock.settimeout(SECONDS)
        sock.shutdown(socket.SHUT_WR)
        while sock.recv(1 << 16):
            pass
    except TimeoutError:
        report.wrong.append(f"no end within {SECONDS} s after {data!r}")


def _hello(context: ssl.SSLContext) -> bytes:
    """The first bytes of a TLS client."""
    incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
    with contextlib.suppress(ssl.SSLWantReadError):
        context.wrap_bio(incoming, outgoing, server_hostname="127.0.0.1").do_handshake()
    return outgoing.read()


def _login(random: Random) -> bytes:
    """The steps of a login, in any order, spoiled."""
    out = b""
    for _ in range(random.randint(1, 5)):
        key = random.choice((_HANDSHAKE, _AUTHENTICATE, _AUTHENTICATE, _VERSIONS, _METADATA))
        api = APIS[key]
        version = random.randint(api.minimum, api.maximum)
        if key == _HANDSHAKE and random.random() < 0.8:
            body = request(key, 1, mechanism=random.choice(("PLAIN", "SCRAM-SHA-256")))
        elif key == _AUTHENTICATE and random.random() < 0.8:
            body = request(key, version, auth_bytes=random.choice(_TOKENS))
        else:
            body = random_request(api, version, random)
        whole = frame(api, version, 1, body)
        out += spoil(whole, random) if random.random() < 0.5 else whole
    return out
