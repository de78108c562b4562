"""The public keys of an identity provider: a JWK set, from a URL or a file.

Rules:

- Keys are fetched on a thread, by one request at a time, and at most once in COOLDOWN_SECONDS,
  however many tokens name unknown keys.
- They are fetched again when they are older than FRESH_SECONDS, and when a token names an unknown
  key. If the provider does not answer, known keys stay trusted for TRUSTED_SECONDS. After that,
  every token is refused.
- Only public keys for signatures are used, each for the algorithms of its type. Symmetric keys are
  ignored: anyone who can verify with such a key can sign with it.
"""

from __future__ import annotations

import asyncio
import json
import logging
import ssl
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import urllib3
from jwt import PyJWK, PyJWTError
from urllib3.exceptions import HTTPError

from headworks._server.security.exposure import is_loopback
from headworks.errors import UsageError

COOLDOWN_SECONDS, FRESH_SECONDS, TRUSTED_SECONDS = 5.0, 300.0, 3600.0
_MAX_KEY_SET_BYTES = 1_000_000
_TIMEOUT_SECONDS = 3.0
_RSA = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512")
_CURVES = {
    "P-256": ("ES256",),
    "P-384": ("ES384",),
    "P-521": ("ES512",),
    "Ed25519": ("EdDSA",),
    "Ed448": ("EdDSA",),
}
_LOG = logging.getLogger(__name__)


class KeysUnavailableError(Exception):
    """The provider does not answer, and its known keys are too old to be trusted."""


class UnknownKeyError(Exception):
    """The provider has no key with this name."""


@dataclass(frozen=True, slots=True)
class Key:
    """A public key and the algorithms that it may verify."""

    name: str | None  # the `kid` of the key set
    public: Any  # the key object of the `cryptography` library
    algorithms: tuple[str, ...]


def read_keys(content: object) -> tuple[Key, ...]:
    """Return the usable keys of a decoded JWK set; ValueError if there is none."""
    listed = content.get("keys") if isinstance(content, dict) else None
    if not isinstance(listed, list):
        raise ValueError("it is not a JWK set: an object with a list `keys`")
    found = tuple(key for one in listed if (key := _read_key(one)) is not None)
    if not found:
        raise ValueError("it has no public key for signatures (RSA, EC or OKP)")
    return found


def _read_key(data: object) -> Key | None:
    if not isinstance(data, dict) or "d" in data or data.get("use") not in (None, "sig"):
        return None
    name, wanted = data.get("kid"), data.get("alg")
    kind = _RSA if data.get("kty") == "RSA" else _CURVES.get(str(data.get("crv")), ())
    algorithms = tuple(one for one in kind if wanted in (None, one))
    if not algorithms or not isinstance(name, str | None):
        return None
    try:
        return Key(name, PyJWK(data, algorithms[0]).key, algorithms)
    except PyJWTError:
        return None


class KeySet:
    """The keys at `source` (https://, file://, or http:// on this machine).

    `ca` is a file of CA certificates for https, and `clock` returns seconds. Raises UsageError for
    a source that could be forged.
    """

    def __init__(
        self,
        source: str,
        *,
        ca: Path | None = None,
        insecure: bool = False,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._source = source
        self._clock = clock
        self._fetch = _fetcher(source, ca, insecure=insecure)
        self._lock = asyncio.Lock()  # one request fetches while the others wait
        self._keys: Mapping[str | None, Key] = {}  # by name
        self._fetched = -TRUSTED_SECONDS  # when the keys were last fetched, by `clock`
        self._tried = -TRUSTED_SECONDS  # when a fetch was last tried
        self._failed = False  # whether the last try failed
        self.generation = 0  # grows whenever the keys change

    @property
    def fresh(self) -> bool:
        """Whether the keys are recent enough to use without a new fetch."""
        return self._clock() - self._fetched < FRESH_SECONDS

    async def find(self, name: str | None) -> Key:
        """Return the key with this name, or the only key if `name` is None.

        Raises KeysUnavailableError or UnknownKeyError.
        """
        if not self.fresh:
            await self._refresh()
        found = self._find(name)
        if found is None:
            await self._refresh()
            found = self._find(name)
        if self._clock() - self._fetched >= TRUSTED_SECONDS or (found is None and self._failed):
            raise KeysUnavailableError
        if found is None:
            raise UnknownKeyError
        return found

    def _find(self, name: str | None) -> Key | None:
        if name is None and len(self._keys) == 1:
            return next(iter(self._keys.values()))
        return None if name is None else self._keys.get(name)

    async def _refresh(self) -> None:
        async with self._lock:
            if self._clock() - self._tried < COOLDOWN_SECONDS:
                return
            try:
                keys = await asyncio.to_thread(self._load)
            except (OSError, ValueError, HTTPError) as error:
                self._failed = True
                _LOG.warning("cannot read the key set %s: %s", self._source, error)
            else:
                self._failed, self._fetched = False, self._clock()
                if {name: key.public for name, key in keys.items()} != {
                    name: key.public for name, key in self._keys.items()
                }:
                    self._keys, self.generation = keys, self.generation + 1
            self._tried = self._clock()

    def _load(self) -> dict[str | None, Key]:
        return {key.name: key for key in read_keys(json.loads(self._fetch()))}


def _fetcher(source: str, ca: Path | None, *, insecure: bool) -> Callable[[], bytes]:
    parts = urlsplit(source)
    if parts.scheme == "file":
        path = Path(unquote(parts.path))
        return lambda: _bounded(path.read_bytes())
    local = parts.hostname == "localhost" or _is_local(parts.hostname or "")
    if not parts.hostname or not (
        parts.scheme == "https" or (parts.scheme == "http" and (local or insecure))
    ):
        raise UsageError(
            f"--jwks {source!r} is not safe: anyone who can answer in its place could sign tokens",
            fix="pass https://..., file:///..., or http://127.0.0.1...",
        )
    try:
        context = ssl.create_default_context(cafile=ca)
    except (OSError, ssl.SSLError) as error:
        raise UsageError(f"cannot read the CA certificates {ca}: {error}") from None
    pool = urllib3.PoolManager(ssl_context=context, maxsize=1)
    return lambda: _get(pool, source)


def _is_local(host: str) -> bool:
    try:
        return is_loopback(host)
    except ValueError:
        return False


def _get(pool: urllib3.PoolManager, source: str) -> bytes:
    answer = pool.request(
        "GET",
        source,
        timeout=_TIMEOUT_SECONDS,
        retries=False,
        redirect=False,
        preload_content=False,
    )
    try:
        if answer.status != 200:
            raise ValueError(f"it answered with status {answer.status}")
        return _bounded(answer.read(_MAX_KEY_SET_BYTES + 1))
    finally:
        answer.drain_conn()
        answer.release_conn()


def _bounded(data: bytes) -> bytes:
    if len(data) > _MAX_KEY_SET_BYTES:
        raise ValueError(f"it is longer than {_MAX_KEY_SET_BYTES} bytes")
    return data
