"""The mirror in the audit of the aggregate: what the sources' producers sent is accounted for."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from headworks import _bundled_schemas
from headworks._audit.balance import Balance
from headworks._audit.reader import read_ledger
from headworks._audit_counting import AUDIT_TOPIC, publishing, window_of
from headworks._audit_counting.counters import CounterFile
from headworks._audit_counting.schema_use import SchemaIds
from headworks._mirror.audit_tier import MirrorAuditTier
from headworks._server import child_process
from headworks._server.child_process import Service
from headworks.registry_client import RegistryClient
from producer_sdk import Producer
from producer_sdk._untyped import event_class
from tests.mirror.conftest import Clusters
from tests.mirror.messages import create, wait_for
from tests.soak.mirror import committed

pytestmark = pytest.mark.e2e

Mirror = Callable[..., child_process.Service]


def governed(registry: Service, topic: str) -> str:
    client = RegistryClient(registry.url)
    text = _bundled_schemas.audit_schema()
    client.register(f"{AUDIT_TOPIC}-value", text)
    schema = json.dumps(
        {"type": "record", "name": "Visit", "fields": [{"name": "page", "type": "string"}]}
    )
    client.register(f"{topic}-value", schema)
    return schema


def test_every_message_of_every_source_is_accounted_for(
    clusters: Clusters, mirror: Mirror, prefix: str, registry: Service, tmp_path: Path
) -> None:
    topic, target = prefix + "visits", clusters.target.address
    event = event_class(topic, governed(registry, topic))
    for source in (clusters.east, clusters.west):
        create(source.address, topic, 2)
        with Producer(
            source.address,
            registry.url,
            application="test",
            events=(event,),
            state_dir=tmp_path / source.address,
        ) as producer:
            for number in range(200):
                assert producer.send(event({"page": f"/{number}"}))
    running = mirror(
        "--from", clusters.east.address, "--from", clusters.west.address, "--to", target,
        "--topics", f"{re.escape(topic)}|headworks\\.audit",
        name=topic, from_registry=registry.url, to_registry=registry.url,
    )  # fmt: skip

    def all_committed() -> bool:
        group, addresses = f"headworks-mirror-{topic}", (clusters.east, clusters.west)
        sums = [sum(committed(at.address, group, topic, 2).values()) for at in addresses]
        return sums == [200, 200]

    wait_for(all_committed, "the commits")
    assert running.stop() == 0

    def balance() -> Balance | None:
        found = read_ledger(target, registry.url).balances(f"mirror:{topic}", topic)
        sums = (sum(row.delivered for row in found), sum(row.accounted for row in found))
        return found[0] if sums == (400, 400) and all(row.complete for row in found) else None

    assert wait_for(balance, "the balance").referenced


def test_what_was_on_the_way_is_unresolved(
    tmp_path: Path, registry: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(publishing, "_CLOSE_SECONDS", 0.5)  # nobody takes the counts
    tier = MirrorAuditTier(
        {"bootstrap.servers": "127.0.0.1:1"}, registry.url, tmp_path, tier="mirror:x"
    )
    window = window_of(time.time_ns() // 1_000_000)
    ids = SchemaIds(7)
    tier.attempted({("t", window, ids): [10, 1000], (AUDIT_TOPIC, window, ids): [5, 5]})
    tier.mirrored({("t", window, ids): [6, 600]})
    tier.too_large("t", window, ids)
    tier.unresolved({("t", window, ids): [2, 0]})
    [left] = tmp_path.glob("*.counts")
    counts = tier._counters.unpublished()
    assert counts["attempted"] == 10
    assert (counts["mirrored"], counts["dropped:too_large"], counts["unresolved"]) == (6, 1, 2)
    copy = tmp_path / "dead"
    copy.mkdir()
    (copy / left.name).write_bytes(left.read_bytes())  # as the next process finds it
    dead = CounterFile(copy, path=copy / left.name)
    [increment] = dead.increments(owner_died=True)
    assert increment.counts["unresolved"] == 3
    assert increment.ids == ids
    assert increment.bytes == 1000
    dead.close()
    tier.close()
