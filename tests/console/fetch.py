"""Asking a console for pages, as a script would."""

from __future__ import annotations

import http.client
import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from tests.waiting import PATIENCE


@dataclass(frozen=True)
class Answer:
    status: int
    headers: Mapping[str, str]
    body: str

    @property
    def json(self) -> Any:
        return json.loads(self.body)


@dataclass(frozen=True)
class Fetch:
    """A console at `url`."""

    url: str

    def __call__(
        self,
        path: str,
        *,
        headers: Mapping[str, str] | None = None,
        method: str = "GET",
        body: str | None = None,
    ) -> Answer:
        address = urlsplit(self.url)
        connection = http.client.HTTPConnection(address.hostname or "", address.port, timeout=60)
        try:
            connection.request(method, path, body, dict(headers or {}))
            found = connection.getresponse()
            text = found.read().decode()
            return Answer(found.status, {k.lower(): v for k, v in found.getheaders()}, text)
        finally:
            connection.close()

    def data(self, path: str) -> Any:
        """The page's data; a server that did not answer the console in time is asked again."""
        deadline = time.monotonic() + PATIENCE
        while (answer := self(path)).status == 503 and time.monotonic() < deadline:
            time.sleep(0.1)
        assert answer.status == 200, answer.body
        return answer.json["data"]

    def until(self, path: str, holds: Callable[[Any], bool], *, patience: float = 120.0) -> Any:
        """The page's data once it is so: what the console knows is a few seconds old."""
        deadline = time.monotonic() + patience
        while True:
            data = self.data(path)
            if holds(data):
                return data
            assert time.monotonic() < deadline, data
            time.sleep(0.1)
