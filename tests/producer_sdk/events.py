"""Two versions of one event, for tests of producer and consumer."""

from __future__ import annotations

import datetime as dt
import itertools
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from headworks import _bundled_schemas
from headworks.registry_client import RegistryClient
from tests.headworks.codec.generated_packages import build

AT = dt.datetime(2020, 1, 1, 0, 25, tzinfo=dt.UTC)
_NUMBER = itertools.count()


def visit_schema(topic: str, version: int) -> str:
    fields: list[dict[str, Any]] = [
        {"name": "user", "type": "string"},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "seconds", "type": "int" if version == 1 else "long"},
    ]
    if version == 2:
        kind = {"type": "enum", "name": "Device", "symbols": ["UNKNOWN", "PHONE"]}
        fields.append({"name": "device", "type": kind, "default": "UNKNOWN"})
        page = {"type": "record", "name": "Page", "fields": [{"name": "url", "type": "string"}]}
        fields.append({"name": "page", "type": ["null", page], "default": None})
    headworks = {"topic": topic, "event_time": "at", "key": ["user"]}
    name = {"type": "record", "name": "Visit", "namespace": "web", "headworks": headworks}
    return json.dumps({**name, "fields": fields})


@dataclass(frozen=True)
class Site:
    """A topic of its own, registered, and the classes of both its versions."""

    topic: str
    one: Any
    two: Any
    bootstrap: str
    registry: str
    state: Path

    def visit(self, user: str = "ada", **more: Any) -> Any:
        return self.one.Visit(**{"user": user, "at": AT, "seconds": 5, **more})


def new_site(folder: Path, bootstrap: str, registry: str) -> Site:
    topic = f"visits{next(_NUMBER)}"
    client = RegistryClient(registry)
    texts = [visit_schema(topic, 1), visit_schema(topic, 2)]
    for text in texts:
        client.register(f"{topic}-value", text)
    audit = _bundled_schemas.audit_schema()
    client.register("headworks.audit-value", audit)
    one, two = (build(folder, {"visit.avsc": text})["web"] for text in texts)
    return Site(topic, one, two, bootstrap, registry, folder / "state")
