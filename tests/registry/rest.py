"""A bare HTTP client for the tests: what goes over the wire, and nothing helpful on top."""

from __future__ import annotations

import itertools
import json
from collections.abc import Mapping
from typing import Any, NamedTuple
from urllib.parse import quote

import urllib3

V1 = "application/vnd.schemaregistry.v1+json"
_numbers = itertools.count()


class Reply(NamedTuple):
    status: int
    body: Any
    content_type: str

    @property
    def code(self) -> int:
        return int(self.body["error_code"])


class Rest:
    """One registry at a URL."""

    def __init__(self, url: str) -> None:
        self.url = url
        self._pool = urllib3.PoolManager(maxsize=64, retries=False)

    def __call__(
        self,
        method: str,
        path: str,
        body: object = None,
        *,
        raw: bytes | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Reply:
        data = raw if raw is not None else None if body is None else json.dumps(body).encode()
        sent = {"Content-Type": V1, **(headers or {})} if data is not None else headers
        answer = self._pool.request(method, self.url + path, body=data, headers=sent, timeout=60)
        content_type = answer.headers.get("content-type", "")
        if "json" not in content_type:
            return Reply(answer.status, answer.data.decode() or None, content_type)
        parsed = json.loads(answer.data) if answer.data else None
        return Reply(answer.status, parsed, content_type)

    def close(self) -> None:
        self._pool.clear()

    def register(self, subject: str, schema: object, query: str = "", **members: object) -> Reply:
        body = {"schema": text_of(schema), **members}
        return self("POST", f"/subjects/{quote(subject, safe='')}/versions{query}", body)


def text_of(schema: object) -> str:
    return schema if isinstance(schema, str) else json.dumps(schema)


def record(*fields: str, name: str = "Event", **attributes: object) -> dict[str, Any]:
    """A record; a field is "name:type", and "name:type=json" gives it a default."""
    return {"type": "record", "name": name, "fields": [_field(f) for f in fields], **attributes}


def _field(spec: str) -> dict[str, object]:
    name, _, rest = spec.partition(":")
    kind, has_default, default = rest.partition("=")
    return {"name": name, "type": kind} | ({"default": json.loads(default)} if has_default else {})


def fresh(stem: str = "subject") -> str:
    """The name of a subject that no other test uses."""
    return f"{stem}-{next(_numbers)}"
