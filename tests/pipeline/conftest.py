"""A governed topic of this test's own: its schema registered, its classes generated."""

from __future__ import annotations

import importlib
import itertools
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from headworks import _bundled_schemas
from headworks._server.child_process import Service
from headworks.registry_client import RegistryClient
from producer_sdk import Producer
from producer_sdk._generator.package import generate, write

_numbers = itertools.count(1)
V1_FIELDS: list[dict[str, Any]] = [
    {"name": "user", "type": "string"},
    {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
    {"name": "count", "type": "int"},
]
V2_FIELDS: list[dict[str, Any]] = [
    *V1_FIELDS[:2],
    {"name": "count", "type": "long"},
    {
        "name": "place",
        "type": {
            "type": "record",
            "name": "Place",
            "fields": [{"name": "city", "type": "string", "default": "nowhere"}],
        },
        "default": {},
    },
    {"name": "tags", "type": {"type": "array", "items": "string"}, "default": []},
]


@dataclass(frozen=True)
class Topic:
    """A topic, with modules generated from two versions of its schema, both registered."""

    name: str
    v1: ModuleType
    v2: ModuleType


def schema_text(topic: str, fields: list[dict[str, Any]]) -> str:
    governed = {"topic": topic, "event_time": "at", "key": ["user"]}
    return json.dumps(
        {"type": "record", "name": "shop.Click", "headworks": governed, "fields": fields}
    )


@pytest.fixture
def topic(tmp_path: Path, registry: Service, monkeypatch: pytest.MonkeyPatch) -> Topic:
    client = RegistryClient(registry.url)
    client.register("headworks.audit-value", _bundled_schemas.audit_schema())
    number = next(_numbers)
    name = f"clicks-{number}"
    monkeypatch.syspath_prepend(tmp_path)
    modules = []
    for version, fields in (("v1", V1_FIELDS), ("v2", V2_FIELDS)):
        folder = tmp_path / f"schemas_{version}"
        folder.mkdir()
        text = schema_text(name, fields)
        (folder / "click.avsc").write_text(text, encoding="utf-8")
        client.register(f"{name}-value", text)
        package = f"clicks_{number}_{version}"
        write(generate([folder]), tmp_path / package)
        modules.append(importlib.import_module(f"{package}.shop"))
    return Topic(name, *modules)


@pytest.fixture
def producer(
    broker: Service, registry: Service, tmp_path: Path
) -> Iterator[Callable[..., Producer]]:
    """Makes producers on the test's broker, with a state folder of the test's own."""
    made: list[Producer] = []

    def make(bootstrap: str = broker.address, **options: Any) -> Producer:
        options = {"application": "test", "state_dir": tmp_path / "state", **options}
        options = {"close_timeout": 60.0, "audit_every": 3600, **options}
        made.append(Producer(bootstrap, registry.url, **options))
        return made[-1]

    yield make
    for one in made:
        one.close()
