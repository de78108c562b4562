"""The file of users: names and salted passwords (SCRAM-SHA-256, RFC 5802 and RFC 7677).

One user per line; empty lines and lines that begin with `#` are ignored:

    NAME:SCRAM-SHA-256$ITERATIONS:SALT$STORED_KEY:SERVER_KEY        (base64)

Rules:

- A secret lets a server verify a password, but not impersonate the user elsewhere.
- An unknown name costs the same time as a wrong password.
- The file is replaced as a whole, readable by its owner only.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import re
import secrets
import threading
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from headworks._atomic_file import replace_file
from headworks._server.security.reloaded_file import ReloadedFile
from headworks.errors import UsageError

ITERATIONS = 16384  # the maximum that every Kafka client and broker accepts
_SCHEME = "SCRAM-SHA-256"
_SALT_BYTES = 24
_MAX_CACHED_PASSWORDS = 1024
_LINE = re.compile(
    r"(?P<name>[^:]+):" + _SCHEME + r"\$(?P<iterations>\d{1,9}):(?P<salt>[^$:]+)"
    r"\$(?P<stored>[^$:]+):(?P<server>[^$:]+)"
)
_NAME = re.compile(r"[A-Za-z0-9._@-]{1,128}")


@dataclass(frozen=True, slots=True)
class Secret:
    """The secret of a password: enough to verify it, but not to recover it."""

    iterations: int
    salt: bytes
    stored_key: bytes
    server_key: bytes


_NOBODY = Secret(ITERATIONS, b"no such user, the same work", bytes(32), bytes(32))


def derive(password: str, salt: bytes, iterations: int) -> Secret:
    """Return the secret of a password (RFC 5802 section 3)."""
    salted = hashlib.pbkdf2_hmac("sha256", password.encode(), salt, iterations)
    client_key = hmac.digest(salted, b"Client Key", "sha256")
    return Secret(
        iterations,
        salt,
        hashlib.sha256(client_key).digest(),
        hmac.digest(salted, b"Server Key", "sha256"),
    )


def check_name(name: str) -> None:
    """Raise UsageError if a name is not allowed for a user."""
    if not _NAME.fullmatch(name) or name == "anonymous":
        raise UsageError(
            f"{name!r} is not a user name",
            fix="use letters, digits and . _ @ - (at most 128), and not anonymous",
        )


def read_users(text: str) -> dict[str, Secret]:
    """Parse a file of users. UsageError names the wrong line, never its content."""
    users: dict[str, Secret] = {}
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip() or line.startswith("#"):
            continue
        found = _LINE.fullmatch(line.strip())
        if found is None:
            raise UsageError(
                f"line {number} of the file of users is not NAME:{_SCHEME}$...",
                fix="write it with `headworks user set NAME --users FILE`",
            )
        if found["name"] in users:
            raise UsageError(f"line {number} of the file of users names {found['name']!r} again")
        try:
            salt, stored, server = (
                base64.b64decode(found[part], validate=True)
                for part in ("salt", "stored", "server")
            )
        except ValueError:
            raise UsageError(f"line {number} of the file of users is not base64") from None
        if len(stored) != 32 or len(server) != 32 or not salt or not int(found["iterations"]):
            raise UsageError(f"line {number} of the file of users has a key of a wrong length")
        users[found["name"]] = Secret(int(found["iterations"]), salt, stored, server)
    return users


def write_users(path: Path, users: Mapping[str, Secret]) -> None:
    """Replace the file; UsageError if it cannot be written."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
        content = "".join(_line(name, secret) for name, secret in sorted(users.items()))
        replace_file(path, content, mode=0o600, temporary=temporary)
    except OSError as error:
        raise UsageError(f"cannot write the file of users {path}: {error.strerror}") from None


def _line(name: str, secret: Secret) -> str:
    salt, stored, server = (
        base64.b64encode(part).decode()
        for part in (secret.salt, secret.stored_key, secret.server_key)
    )
    return f"{name}:{_SCHEME}${secret.iterations}:{salt}${stored}:{server}\n"


def new_secret(password: str) -> Secret:
    """Return the secret of a password with a new salt. UsageError if the password is empty."""
    if not password:
        raise UsageError("the password is empty")
    return derive(password, secrets.token_bytes(_SALT_BYTES), ITERATIONS)


class Users:
    """The users of a file, reloaded when it changes; thread-safe."""

    def __init__(self, path: Path) -> None:
        self._file = ReloadedFile(path, read_users)
        self._lock = threading.Lock()  # guards the cache
        self._key = secrets.token_bytes(32)  # of this process; keys the hashes of passwords
        self._verified: OrderedDict[bytes, None] = OrderedDict()  # hashes of right passwords

    def secret(self, name: str) -> Secret | None:
        """Return the secret of a user, or None if there is no such user."""
        return self._file.get().get(name)

    def remembers(self, name: str, password: str) -> bool:
        """Return whether `verify` has accepted this password before; microseconds."""
        secret = self.secret(name)
        return secret is not None and self._mark(secret, password) in self._verified

    def _mark(self, secret: Secret, password: str) -> bytes:
        return hmac.digest(self._key, secret.stored_key + password.encode(), "sha256")

    def verify(self, name: str, password: str) -> bool:
        """Return whether this is the user's password; 10 ms the first time, then microseconds."""
        secret = self.secret(name)
        kept = secret or _NOBODY
        mark = self._mark(kept, password)
        with self._lock:
            if secret is not None and mark in self._verified:
                self._verified.move_to_end(mark)
                return True
        offered = derive(password, kept.salt, kept.iterations).stored_key
        if not hmac.compare_digest(offered, kept.stored_key) or secret is None:
            return False
        with self._lock:
            self._verified[mark] = None
            if len(self._verified) > _MAX_CACHED_PASSWORDS:
                self._verified.popitem(last=False)
        return True
