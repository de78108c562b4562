"""A registry's application and operations in this process, without a connection."""

from __future__ import annotations

import json
from typing import Any

from starlette.types import ASGIApp

from headworks._registry.model.schema_limits import SchemaLimits
from headworks._registry.operations.parsed_schemas import SchemaCache
from headworks._registry.operations.registrar import Registrar
from headworks._registry.store import RegistryStore


async def ask(
    app: ASGIApp, method: str, target: str, content: object = None, sent: list[Any] | None = None
) -> tuple[int, Any]:
    """Return the status and the body of the answer; `sent` gets its messages."""
    path, _, query = target.partition("?")
    body = b"" if content is None else json.dumps(content).encode()
    messages: list[Any] = [] if sent is None else sent

    async def receive() -> dict[str, object]:
        return {"type": "http.request", "body": body, "more_body": False}

    async def send(message: Any) -> None:
        messages.append(message)

    scope = {
        "type": "http",
        "method": method,
        "path": path,
        "raw_path": path.encode(),
        "query_string": query.encode(),
        "headers": [(b"host", b"localhost"), (b"content-type", b"application/json")],
        "client": ("127.0.0.1", 1),
    }
    await app(scope, receive, send)
    answer = messages[1]["body"]
    if not answer.startswith((b"{", b"[", b'"')):
        return messages[0]["status"], answer.decode()
    return messages[0]["status"], json.loads(answer)


def registrar(store: RegistryStore) -> Registrar:
    return Registrar(store, SchemaCache(), SchemaLimits())
