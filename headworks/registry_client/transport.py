"""One HTTP request to a registry, with bounded retries; what comes back is JSON or an error.

Rules:

- Only what may succeed if repeated is repeated: a connection that failed and the statuses 502,
  503 and 504. Every request of the interface may be sent twice (registering is idempotent).
- A mistake of the caller (4xx) is never repeated.
- Connections do not cross a fork: a child process opens its own.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Mapping
from typing import Any

import urllib3
from urllib3.exceptions import HTTPError, LocationParseError
from urllib3.util import Timeout, make_headers, parse_url

from headworks.errors import RefusedError, UnreachableError, UsageError

__all__ = ["CONTENT_TYPE", "Answer", "Transport"]

CONTENT_TYPE = "application/vnd.schemaregistry.v1+json"
Answer = Any
_RETRIED = frozenset({502, 503, 504})
_ATTEMPTS = 4
_FIRST_PAUSE = 0.1
_CONNECTIONS = 8


class Transport:
    """Sends requests to the registry at `url`; safe to share between threads.

    `url` may carry a user and a password, which are sent as HTTP basic authentication.
    """

    def __init__(
        self, url: str, *, timeout: float, sleep: Callable[[float], None] = time.sleep
    ) -> None:
        self.url, auth = _read_url(url)
        self._headers = {"Accept": f"{CONTENT_TYPE}, application/json"}
        if auth is not None:
            self._headers |= make_headers(basic_auth=auth)
        self._timeout = Timeout(timeout)
        self._sleep = sleep
        self._pool, self._pid = self._connect(), os.getpid()

    def request(
        self, method: str, path: str, body: Mapping[str, object] | None = None
    ) -> tuple[int, Answer]:
        """Send one request and return (status, decoded JSON); None for an empty body.

        `path` is percent-encoded and starts with "/". Raises UnreachableError if no registry
        answers, RefusedError if what answers does not speak JSON.
        """
        payload = None if body is None else json.dumps(body).encode()
        headers = (
            self._headers if payload is None else {**self._headers, "Content-Type": CONTENT_TYPE}
        )
        for attempt in range(1, _ATTEMPTS + 1):
            try:
                response = self._current_pool().request(
                    method,
                    self.url + path,
                    body=payload,
                    headers=headers,
                    timeout=self._timeout,
                    retries=False,
                )
            except HTTPError as error:
                if attempt == _ATTEMPTS:
                    raise self._unreachable(str(error)) from None
            else:
                if response.status not in _RETRIED:
                    return response.status, self._decode(response.status, response.data)
                if attempt == _ATTEMPTS:
                    raise self._unreachable(f"it answered with status {response.status}")
            self._sleep(_FIRST_PAUSE * 2 ** (attempt - 1))
        raise AssertionError("the last attempt returns or raises")

    def _decode(self, status: int, data: bytes) -> Answer:
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

    def _current_pool(self) -> urllib3.PoolManager:
        if os.getpid() != self._pid:
            self._pool, self._pid = self._connect(), os.getpid()
        return self._pool

    @staticmethod
    def _connect() -> urllib3.PoolManager:
        return urllib3.PoolManager(maxsize=_CONNECTIONS, block=False)


def _read_url(url: str) -> tuple[str, str | None]:
    """Split into (the URL without its password, `user:password` or None)."""
    try:
        parsed = parse_url(url)
    except LocationParseError:
        parsed = parse_url("")
    if parsed.scheme not in ("http", "https") or not parsed.host:
        raise UsageError(
            f"{url!r} is not the address of a schema registry",
            fix="write it like http://127.0.0.1:8081",
        )
    base = parsed._replace(auth=None, query=None, fragment=None).url.rstrip("/")
    return base, parsed.auth
