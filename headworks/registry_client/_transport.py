"""One HTTP request to a registry, with bounded retries; returns JSON or raises an error.

Rules:

- Several registries on one store serve alike. A request goes to the one that answered last. If that
  one fails, the others are asked at once, before any pause, and later requests stay there.

- A request is retried after a failed connection and after the statuses 429, 502, 503, and 504. It
  is also retried if the registry's own store has failed (a 500 with 50001 to 50003). Every request
  may be sent twice, because registering is idempotent.
- A mistake of the caller (4xx) is never retried.
- Connections do not cross a fork: a child process opens its own.
- Credentials are sent to the registry and shown nowhere. The URL in messages has none.
"""

from __future__ import annotations

import json
import logging
import os
import re
import ssl
import time
from collections.abc import Callable, Mapping

import urllib3
from urllib3.exceptions import (
    HTTPError,
    LocationParseError,
    NewConnectionError,
    ProtocolError,
    SSLError,
)
from urllib3.exceptions import TimeoutError as TimedOutError
from urllib3.util import Timeout, parse_url

from headworks import _version_lines
from headworks._settings import resolve_optional
from headworks.errors import HeadworksError, RefusedError, UnreachableError, UsageError
from headworks.registry_client._answers import CHECK_THE_SETTING, JsonBody
from headworks.registry_client._credentials import Token, choose, redacted

CONTENT_TYPE = "application/vnd.schemaregistry.v1+json"
_RETRIED_STATUSES = frozenset({429, 502, 503, 504})
_STORE_ERROR_CODES = frozenset({50001, 50002, 50003})  # failed, timed out, no leader
_FIRST_PAUSE_SECONDS = 0.1
_MAX_CONNECTIONS = 8
_QUIET_SECONDS = 60.0  # between warnings
_BETWEEN_URLS = re.compile(r"\s*,\s*(?=https?://)")
_log = logging.getLogger("headworks.registry")


class HttpTransport:
    """Sends requests to the registry at `url`; safe to share between threads.

    `url` may list several registries on one store, with commas. An attempt asks each of them once,
    with `timeout` seconds for each.

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
        self.urls, user_info = _read_urls(url)
        self._current = 0  # the index of the URL that answered last
        self._quiet_until = 0.0  # by the monotonic clock: all may be away for long
        self.url = ",".join(self.urls)  # without credentials
        self.credentials = choose(user_info, username, password, token)
        self._authority = _authority(tls_ca) if "https:" in self.url else None
        accepted = _version_lines.CONTENT_TYPE, CONTENT_TYPE, "application/json"
        self._headers = {"Accept": ", ".join(accepted)}
        self._timeout = Timeout(timeout)
        self._attempts = attempts
        self._sleep = sleep
        self._pool, self._pid = self._connect(), os.getpid()  # a fork gets a pool of its own

    def request(
        self, method: str, path: str, body: Mapping[str, object] | None = None
    ) -> tuple[int, JsonBody]:
        """Send one request and return (status, decoded JSON or lines); None for an empty body.

        `path` is percent-encoded and starts with "/". Raises UnreachableError if no registry
        answers, and RefusedError if the response is not JSON.
        """
        payload = None if body is None else json.dumps(body).encode()
        headers = {**self._headers, **self.credentials.headers}
        if payload is not None:
            headers["Content-Type"] = CONTENT_TYPE
        count = len(self.urls)
        for asked in range(1, self._attempts * count + 1):
            current = self._current
            found: tuple[int, JsonBody] | UnreachableError | RefusedError
            try:
                found = self._ask(method, self.urls[current], path, payload, headers)
            except (UnreachableError, RefusedError) as error:  # asking it again is of no use
                if count == 1:
                    raise
                found = error
            if not isinstance(found, HeadworksError):
                return found
            self._leave(current, found)
            if asked == self._attempts * count:
                raise found if count == 1 else _of_all(self.urls, found)
            if asked % count == 0:
                self._sleep(_FIRST_PAUSE_SECONDS * 2 ** (asked // count - 1))
        raise AssertionError("the last attempt returns or raises")

    def _ask(
        self, method: str, url: str, path: str, payload: bytes | None, headers: Mapping[str, str]
    ) -> tuple[int, JsonBody] | UnreachableError:
        """Ask one registry once; return an UnreachableError if asking it again may help.

        Raises UnreachableError for a certificate, and RefusedError for what is no registry.
        """
        try:
            response = self._current_pool().request(
                method,
                url + path,
                body=payload,
                headers=headers,
                timeout=self._timeout,
                retries=False,
            )
        except SSLError as error:
            raise _untrusted(url, error) from None
        except HTTPError as error:
            return _unreachable(url, _reason(url, error))
        if response.status in _RETRIED_STATUSES:
            return _unreachable(url, f"it answered with status {response.status}")
        answer = _decode(url, response)
        if _store_failed(response.status, answer):
            return _store_error(url, answer)
        return response.status, answer

    def _leave(self, failed: int, error: HeadworksError) -> None:
        """Ask the next registry from now on, unless another thread has moved on already."""
        if len(self.urls) == 1 or self._current != failed:
            return
        self._current = (failed + 1) % len(self.urls)
        if time.monotonic() >= self._quiet_until:
            self._quiet_until = time.monotonic() + _QUIET_SECONDS
            _log.warning("%s; asking %s from now on", error.message, self.urls[self._current])

    def _current_pool(self) -> urllib3.PoolManager:
        if os.getpid() != self._pid:
            self._pool, self._pid = self._connect(), os.getpid()
        return self._pool

    def _connect(self) -> urllib3.PoolManager:
        return urllib3.PoolManager(
            maxsize=_MAX_CONNECTIONS, block=False, ssl_context=self._authority
        )


def _decode(url: str, response: urllib3.BaseHTTPResponse) -> JsonBody:
    data = response.data
    if not data:
        return None
    in_lines = response.headers.get("content-type") == _version_lines.CONTENT_TYPE
    try:
        return _version_lines.decode(data) if in_lines else json.loads(data)
    except (ValueError, RecursionError):
        raise RefusedError(
            f"{url} is not a schema registry: it answered with status {response.status} and "
            f"{data[:80]!r} instead of JSON",
            status=response.status,
            fix=CHECK_THE_SETTING,
        ) from None


def _store_error(url: str, answer: Mapping[str, object]) -> UnreachableError:
    return UnreachableError(
        f"the registry at {url} cannot reach its store ({answer['error_code']}): "
        f"{answer.get('message', 'it does not say why')}",
        fix="repair the database behind the registry (its --store), then run this again",
    )


def _untrusted(url: str, error: SSLError) -> UnreachableError:
    if not isinstance(error.args[0], ssl.SSLCertVerificationError):
        return UnreachableError(
            f"the server at {url} does not use TLS as this client does: {error}",
            fix="if it has no TLS, begin its URL in the setting `registry` with http://",
        )
    return UnreachableError(
        f"the registry at {url} is not trusted: {error}",
        fix="give the certificate of the CA that signed its own: the setting tls_ca "
        "(HEADWORKS_TLS_CA)",
    )


def _unreachable(url: str, why: str) -> UnreachableError:
    return UnreachableError(
        f"no schema registry answers at {url}: {why}",
        fix="start one with `headworks registry start` or `headworks up`, "
        "or check the setting `registry` (`headworks config show`)",
    )


def _of_all(urls: tuple[str, ...], last: HeadworksError) -> UnreachableError:
    message = f"none of the registries {', '.join(urls)} answers; the last error: {last.message}"
    return UnreachableError(message, fix=last.fix)


def _store_failed(status: int, answer: JsonBody) -> bool:
    return (
        status == 500
        and isinstance(answer, dict)
        and answer.get("error_code") in _STORE_ERROR_CODES
    )


def _reason(url: str, error: HTTPError) -> str:
    """Return why there was no response, without the names of internal objects."""
    if isinstance(error, NewConnectionError):
        return str(error).rpartition("] ")[2]
    if isinstance(error, ProtocolError):
        tls = "" if url.startswith("https:") else " (if it has TLS, its URL begins with https:)"
        return f"the server there ends the connection{tls}"
    return "it takes too long" if isinstance(error, TimedOutError) else str(error)


def _authority(tls_ca: str | os.PathLike[str] | None) -> ssl.SSLContext:
    path = resolve_optional("tls_ca", tls_ca)
    try:
        return ssl.create_default_context(cafile=path)
    except OSError as error:
        raise UsageError(f"cannot read the CA certificates {path} (tls_ca): {error}") from None


def split_urls(text: str) -> list[str]:
    """Return the URLs of a list. A comma ends one only before the next scheme.

    So a password may have commas.
    """
    return _BETWEEN_URLS.split(text)


def _read_urls(text: str) -> tuple[tuple[str, ...], str | None]:
    """Split into (the URLs without passwords, `user:password` as written, or None)."""
    found = [_read_url(one) for one in split_urls(text)]
    given = {user_info for _, user_info in found if user_info is not None}
    if len(given) > 1:
        raise UsageError(
            f"{redacted(text)!r} has different credentials for registries of one list",
            fix="give the registries on one store one user",
        )
    return tuple(dict.fromkeys(url for url, _ in found)), next(iter(given), None)


def _read_url(url: str) -> tuple[str, str | None]:
    """Split into (the URL without its password, `user:password` as written, or None)."""
    try:
        parsed = parse_url(url)
    except LocationParseError:
        parsed = parse_url("")
    if parsed.scheme not in ("http", "https") or not parsed.host or "," in parsed.host:
        raise UsageError(
            f"{redacted(url)!r} is not the address of a schema registry",
            fix="write it like http://127.0.0.1:8081, or like http://one:8081,http://two:8081",
        )
    base = parsed._replace(auth=None, query=None, fragment=None).url.rstrip("/")
    return base, parsed.auth
