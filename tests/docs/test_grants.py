"""The grants that docs/security.md gives for a whole pipeline are enough for each of its parts."""

from __future__ import annotations

import importlib
import json
import re
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

import pytest
import requests
from confluent_kafka import Producer as PlainProducer
from confluent_kafka.admin import AdminClient

from consumer_sdk import Consumer, OnPoison
from hadoop_loader._operations.load import Load
from headworks import _bundled_schemas
from headworks._audit import queries
from headworks._audit.reconciler import Reconciler
from headworks._audit.store import AuditStore
from headworks._kafka.client_properties import client_properties
from headworks._server import child_process
from headworks._server.security.users import new_secret, write_users
from headworks.registry_client import RegistryClient
from producer_sdk import Producer
from producer_sdk._generator.package import generate, write
from tests.soak.fire_loader import loader_context
from tests.waiting import until

pytestmark = pytest.mark.e2e

_TOPIC = "shop.orders"
_SCHEMA = {
    "type": "record",
    "name": "Order",
    "namespace": "orders_of_grants",
    "headworks": {"topic": _TOPIC, "event_time": "placed_at"},
    "fields": [
        {"name": "placed_at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "cents", "type": "int"},
    ],
}
_PASSWORD = "secret"
_USERS = ("web", "billing", "loader", "audit", "console", "operator")
_OPERATOR = '\n[[grants]]\nto = ["operator"]\nroles = ["admin"]\n'
_EVENTS = 5


@pytest.fixture
def access(tmp_path: Path, root: Path) -> list[str]:
    """The options of a server with these users, and with the grants of the page."""
    page = (root / "docs/security.md").read_text(encoding="utf-8")
    (grants,) = re.findall(r"<!-- grants of a pipeline.*?-->\n```toml\n(.*?)```", page, re.DOTALL)
    users, file = tmp_path / "users.txt", tmp_path / "access.toml"
    write_users(users, dict.fromkeys(_USERS, new_secret(_PASSWORD)))
    file.write_text(grants + _OPERATOR, encoding="utf-8")
    return ["--listen", "127.0.0.1:0", "--users", str(users), "--access", str(file)]


def test_each_part_of_a_pipeline_works_with_its_grants(
    tmp_path: Path, access: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def log_in(name: str) -> None:
        monkeypatch.setenv("HEADWORKS_USERNAME", name)
        monkeypatch.setenv("HEADWORKS_PASSWORD", _PASSWORD)

    store = f"sqlite:///{tmp_path / 'registry.db'}"
    data = ["--data-dir", str(tmp_path / "data")]
    with (
        child_process.start(["broker", "start", *data, *access]) as broker,
        child_process.start(["registry", "start", "--store", store, *access]) as registry,
    ):
        at = broker.address, registry.url
        log_in("operator")
        RegistryClient(registry.url).register(
            "headworks.audit-value", _bundled_schemas.audit_schema()
        )
        log_in("web")
        _produce(tmp_path, at, monkeypatch)
        log_in("billing")
        _consume(tmp_path, at)
        log_in("loader")
        report = Load(loader_context(*at, tmp_path / "warehouse")).run()
        assert {one.topic: one.rows for one in report.topics}[_TOPIC] == _EVENTS
        log_in("audit")
        _reconcile(tmp_path, at)
        log_in("console")
        _look(tmp_path, at, access)


def _produce(folder: Path, at: tuple[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    """Register the schema, and send events, and a message that nobody can decode."""
    schemas = folder / "schemas"
    schemas.mkdir()
    (schemas / "order.avsc").write_text(json.dumps(_SCHEMA), encoding="utf-8")
    RegistryClient(at[1]).register(f"{_TOPIC}-value", json.dumps(_SCHEMA))
    write(generate([schemas]), folder / "orders_generated")
    monkeypatch.syspath_prepend(folder)
    order = importlib.import_module("orders_generated.orders_of_grants").Order
    with Producer(*at, application="web", state_dir=folder / "web") as producer:
        for number in range(_EVENTS):
            assert producer.send(order(placed_at=datetime.now(UTC), cents=number))
    plain = PlainProducer(client_properties(at[0]))
    plain.produce(_TOPIC, b"poison")
    assert plain.flush(60) == 0


def _consume(folder: Path, at: tuple[str, str]) -> None:
    with Consumer(
        topics=[_TOPIC],
        group="billing",
        bootstrap=at[0],
        registry=at[1],
        audit=True,
        application="billing",
        state_dir=folder / "billing",
        on_poison=OnPoison.DEAD_LETTER,
    ) as consumer:
        for _ in range(_EVENTS):
            assert consumer.poll(60) is not None
        client = AdminClient(client_properties(at[0]))
        letters = f"{_TOPIC}.dead-letter"
        until(lambda: consumer.poll(0.5) or letters in client.list_topics(timeout=60).topics)


def _reconcile(folder: Path, at: tuple[str, str]) -> None:
    store = AuditStore(f"sqlite:///{folder / 'audit.db'}")
    with Reconciler(*at, store) as reconciler:
        reconciler.catch_up()
    for tier in ("hadoop", "consumer:billing"):
        (found,) = queries.topic_sums(store, tier, topic=_TOPIC)
        assert (found.delivered, found.missing, found.surplus) == (_EVENTS, 0, 1)
    store.close()


def _look(folder: Path, at: tuple[str, str], access: list[str]) -> None:
    arguments = ["console", "start", "--bootstrap", at[0], "--registry", at[1], *access]
    arguments += ["--audit-store", f"sqlite:///{folder / 'audit.db'}"]
    arguments += ["--warehouse", str(folder / "warehouse")]
    with child_process.start(arguments) as console:

        def shows(page: str, name: str) -> bool:
            shown = requests.get(console.url + page, auth=("operator", _PASSWORD), timeout=60)
            assert shown.status_code == 200
            return name in shown.text

        for page, name in (("/topics", _TOPIC), ("/schemas", _TOPIC), ("/groups", "billing")):
            until(partial(shows, page, name))  # it may not have read its sources yet
        assert shows(f"/topics/{_TOPIC}/messages", _TOPIC)
