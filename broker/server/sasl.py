"""SASL PLAIN (RFC 4616) and SCRAM-SHA-256 (RFC 7677), the server's side, without I/O.

Rules: a client's message may be of any length and need not be text. An invalid message raises
`LoginError`, whose text is for the log and never for the client. An unknown name costs the same
steps as a known one.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import re
import secrets
from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

from headworks._server.security import Secret
from headworks._server.security.users import ITERATIONS
from headworks.errors import RefusedError

MECHANISMS = ("PLAIN", "SCRAM-SHA-256")
_KEY = secrets.token_bytes(
    32
)  # of this process: the salts of unknown users must not change between two attempts
_NOBODY = Secret(ITERATIONS, b"", bytes(32), bytes(32))
_CLIENT_FIRST = re.compile(
    r"(?P<header>[ny],(a=(?P<wanted>[^,]+))?,)(?P<bare>n=(?P<name>[^,]+),r=(?P<nonce>[!-+\--~]+)(,.*)?)"
)
_CLIENT_FINAL = re.compile(
    r"(?P<unsigned>c=(?P<header>[^,]+),r=(?P<nonce>[^,]+)(,.*)?),p=(?P<proof>[^,]+)"
)


class LoginError(RefusedError):
    """A failed login; `name` is the user that it was for, as far as it is known."""

    def __init__(self, message: str, name: str = "") -> None:
        super().__init__(message)
        self.name = name


class Password(NamedTuple):
    """The name and the password of PLAIN."""

    name: str
    password: str


def read_plain(token: bytes) -> Password:
    """Parse the message of PLAIN: [authorization name] NUL name NUL password."""
    parts = token.split(b"\0")
    if len(parts) != 3:
        raise LoginError("the PLAIN message does not have three parts")
    try:
        wanted, name, password = (part.decode() for part in parts)
    except UnicodeDecodeError:
        raise LoginError("the PLAIN message is not UTF-8") from None
    if wanted not in ("", name):
        raise LoginError(f"may not act for {wanted[:128]!r}", name)
    if not name or not password:
        raise LoginError("the name or the password is empty", name)
    return Password(name, password)


class ScramExchange:
    """One exchange of SCRAM-SHA-256; `secret_of` returns the secret of a user."""

    def __init__(
        self,
        secret_of: Callable[[str], Secret | None],
        new_nonce: Callable[[], str] = lambda: secrets.token_urlsafe(24),
    ) -> None:
        self._secret_of = secret_of
        self._new_nonce = new_nonce
        self._secret: Secret | None = None
        self._kept = _NOBODY
        self._header = self._bare = self._nonce = self._first = ""
        self.name = ""

    def step(self, token: bytes) -> tuple[bytes, bool]:
        """Return the reply to the client's next message, and whether `name` is authenticated."""
        try:
            message = token.decode()
        except UnicodeDecodeError:
            raise LoginError("the SCRAM message is not UTF-8", self.name) from None
        if not self._first:
            self._first = self._begin(message)
            return self._first.encode(), False
        return self._finish(message), True

    def _begin(self, message: str) -> str:
        """Client first: `n,[a=name],n=name,r=nonce`; server first: nonce, salt, iterations."""
        found = _CLIENT_FIRST.fullmatch(message)
        if found is None:
            raise LoginError("the first SCRAM message is malformed, or wants channel binding")
        self._header, self._bare = found["header"], found["bare"]
        self.name = found["name"].replace("=2C", ",").replace("=3D", "=")
        if found["wanted"] not in (None, found["name"]):
            raise LoginError(f"may not act for {found['wanted'][:128]!r}", self.name)
        self._secret = self._secret_of(self.name)
        if self._secret is None:  # an unknown user has the same salt in every attempt
            salt = hmac.digest(_KEY, self.name.encode(), "sha256")[:24]
            self._kept = replace(_NOBODY, salt=salt)
        else:
            self._kept = self._secret
        self._nonce = found["nonce"] + self._new_nonce()
        shown = base64.b64encode(self._kept.salt).decode()
        return f"r={self._nonce},s={shown},i={self._kept.iterations}"

    def _finish(self, message: str) -> bytes:
        """Client final: `c=header,r=nonce,p=proof`; server final: our own signature."""
        found = _CLIENT_FINAL.fullmatch(message)
        if found is None:
            raise LoginError("the final SCRAM message is malformed", self.name)
        try:
            header, proof = (base64.b64decode(found[x], validate=True) for x in ("header", "proof"))
        except ValueError:
            raise LoginError("the final SCRAM message is not base64", self.name) from None
        # librdkafka 2.0 sends its own part of the nonce twice; Apache Kafka takes that too
        if header != self._header.encode() or not found["nonce"].endswith(self._nonce):
            raise LoginError("the final SCRAM message does not fit the first", self.name)
        signed = f"{self._bare},{self._first},{found['unsigned']}".encode()
        signature = hmac.digest(self._kept.stored_key, signed, "sha256")
        client_key = bytes(a ^ b for a, b in zip(signature, proof.ljust(32, b"\0"), strict=False))
        shown = hashlib.sha256(client_key).digest()
        right = hmac.compare_digest(shown, self._kept.stored_key) and len(proof) == len(signature)
        if self._secret is None:
            raise LoginError("there is no such user", self.name)
        if not right:
            raise LoginError("wrong password", self.name)
        return b"v=" + base64.b64encode(hmac.digest(self._kept.server_key, signed, "sha256"))
