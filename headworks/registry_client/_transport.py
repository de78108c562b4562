"""One HTTP request to a registry, with bounded retries; returns JSON or raises an error.

Rules:

- A request is retried after a failed connection and after the statuses 429, 502, 503, and 504. It
  is also retried if the registry's own store has failed (a 500 with 50001 to 50003). Every request
  may be sent twice, because registering is idempotent.
- A mistake of the caller (4xx) is never retried.
- Connections do not cross a fork: a child process opens its own.
- Credentials are sent to the registry and shown nowhere. The URL in messages has none.
"""

from __future__ import annotations

import json
import os
import ssl
import time
from collections.abc import Callable, Mapping
from typing import Any

import urllib3
from urllib3.exceptions import HTTPError, LocationParseError, NewConnectionError, SSLError
from urllib3.exceptions import TimeoutError as TimedOutError
from urllib3.util import Timeout, parse_url

from headworks._settings import resolve_optional
from headworks.errors import RefusedError, UnreachableError, UsageError
from headworks.registry_client._credentials import Token, choose, redacted

CONTENT_TYPE = "application/vnd.schemaregistry.v1+json"
JsonBody = Any
_RETRIED_STATUSES = frozenset({429, 502, 503, 504})
_STORE_ERROR_CODES = frozenset({50001, 50002, 50003})  # failed, timed out, no leader
_FIRST_PAUSE_SECONDS = 0.1
_MAX_CONNECTIONS = 8


class HttpTransport:
    """Sends requests to the registry at `url`; safe to share between threads.

    `username` and `password`, or those in `url` or in the settings, are sent as HTTP basic
    authentication, and `token` as a bearer token. The certificates in `tls_ca`, in the setting of
    that name, or of the system verify an https registry.
    """

    def __init__(
        self,
        url: str,
        *,
        timeout: float,
        attempts: int = 4,
        sleep: Callable[[float], None] = time.sleep,
        username: str | None = None,
        password: str | None = None,
        token: Token | None = None,
        tls_ca: str | os.PathLike[str] | None = None,
    ) -> None:
        self.url, user_info = _read_url(url)
        self.credentials = choose(user_info, username, password, token)
        self._authority = _authority(tls_ca) if self.url.startswith("https:") else None
        self._headers = {"Accept": f"{CONTENT_TYPE}, application/json"}
        self._timeout = Timeout(timeout)
        self._attempts = attempts
        self._sleep = sleep
        self._pool, self._pid = self._connect(), os.getpid()  # a fork gets a pool of its own

    def request(
        self, method: str, path: str, body: Mapping[str, object] | None = None
    ) -> tuple[int, JsonBody]:
        """Send one request and return (status, decoded JSON); None for an empty body.

        `path` is percent-encoded and starts with "/". Raises UnreachableError if no registry
        answers, and RefusedError if the response is not JSON.
        """
        payload = None if body is None else json.dumps(body).encode()
        headers = {**self._headers, **self.credentials.headers}
        if payload is not None:
            headers["Content-Type"] = CONTENT_TYPE
        for attempt in range(1, self._attempts + 1):
            try:
                response = self._current_pool().request(
                    method,
                    self.url + path,
                    body=payload,
                    headers=headers,
                    timeout=self._timeout,
                    retries=False,
                )
            except SSLError as error:
                raise self._untrusted(error) from None
            except HTTPError as error:
                if attempt == self._attempts:
                    raise self._unreachable(_reason(error)) from None
            else:
                if response.status in _RETRIED_STATUSES:
                    error_to_raise = self._unreachable(f"it answered with status {response.status}")
                else:
                    answer = self._decode(response.status, response.data)
                    if not _store_failed(response.status, answer):
                        return response.status, answer
                    error_to_raise = self._store_error(answer)
                if attempt == self._attempts:
                    raise error_to_raise
            self._sleep(_FIRST_PAUSE_SECONDS * 2 ** (attempt - 1))
        raise AssertionError("the last attempt returns or raises")

    def _decode(self, status: int, data: bytes) -> JsonBody:
        if not data:
            return None
        try:
            return json.loads(data)
        except ValueError:
            raise RefusedError(
                f"{self.url} is not a schema registry: it answered with status {status} and "
                f"{data[:80]!r} instead of JSON",
                status=status,
                fix="check the setting `registry` (`headworks config show`)",
            ) from None

    def _unreachable(self, why: str) -> UnreachableError:
        return UnreachableError(
            f"no schema registry answers at {self.url}: {why}",
            fix="start one with `headworks registry start` or `headworks up`, "
            "or check the setting `registry` (`headworks config show`)",
        )

    def _store_error(self, answer: Mapping[str, object]) -> UnreachableError:
        return UnreachableError(
            f"the registry at {self.url} cannot reach its store ({answer['error_code']}): "
            f"{answer.get('message', 'it does not say why')}",
            fix="repair the database behind the registry (its --store), then run this again",
        )

    def _untrusted(self, error: SSLError) -> UnreachableError:
        return UnreachableError(
            f"the registry at {self.url} is not trusted: {error}",
            fix="give the certificate of the CA that signed its own: the setting tls_ca "
            "(HEADWORKS_TLS_CA)",
        )

    def _current_pool(self) -> urllib3.PoolManager:
        if os.getpid() != self._pid:
            self._pool, self._pid = self._connect(), os.getpid()
        return self._pool

    def _connect(self) -> urllib3.PoolManager:
        return urllib3.PoolManager(
            maxsize=_MAX_CONNECTIONS, block=False, ssl_context=self._authority
        )


def _store_failed(status: int, answer: JsonBody) -> bool:
    return (
        status == 500
        and isinstance(answer, dict)
        and answer.get("error_code") in _STORE_ERROR_CODES
    )


def _reason(error: HTTPError) -> str:
    """Return why there was no response, without the names of internal objects."""
    if isinstance(error, NewConnectionError):
        return str(error).rpartition("] ")[2]
    return "it takes too long" if isinstance(error, TimedOutError) else str(error)


def _authority(tls_ca: str | os.PathLike[str] | None) -> ssl.SSLContext:
    path = resolve_optional("tls_ca", tls_ca)
    try:
        return ssl.create_default_context(cafile=path)
    except OSError as error:
        raise UsageError(f"cannot read the CA certificates {path} (tls_ca): {error}") from None


def _read_url(url: str) -> tuple[str, str | None]:
    """Split into (the URL without its password, `user:password` as written, or None)."""
    try:
        parsed = parse_url(url)
    except LocationParseError:
        parsed = parse_url("")
    if parsed.scheme not in ("http", "https") or not parsed.host:
        raise UsageError(
            f"{redacted(url)!r} is not the address of a schema registry",
            fix="write it like http://127.0.0.1:8081",
        )
    base = parsed._replace(auth=None, query=None, fragment=None).url.rstrip("/")
    return base, parsed.auth
