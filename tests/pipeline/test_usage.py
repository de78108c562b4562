"""The users of each version: producers and consumers of two versions, and a plain client."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import confluent_kafka
import pytest

from consumer_sdk import Consumer, OnPoison
from headworks._audit.reconciler import Reconciler
from headworks._audit.store import AuditStore
from headworks._audit.usage import SubjectUsage
from headworks._audit.usage_reader import group_readers, read_usage
from headworks._ci.usage_source import console_usage
from headworks._cli.main import command_line
from headworks._server import child_process
from headworks._server.child_process import Service
from headworks.errors import UnreachableError
from headworks.registry_client import RegistryClient
from producer_sdk import Producer
from tests.pipeline.conftest import Topic

pytestmark = pytest.mark.e2e

AT = datetime(2026, 5, 1, 12, tzinfo=UTC)


def read_all(
    group: str, addresses: tuple[str, str], folder: Path, messages: int, **how: Any
) -> None:
    options = {"audit": True, "application": f"{group}-app", "state_dir": folder, **how}
    with Consumer(group=group, bootstrap=addresses[0], registry=addresses[1], **options) as made:
        for _ in range(messages):
            assert made.poll(60) is not None


def read_plainly(topic: str, group: str, bootstrap: str) -> None:
    """Read and commit as any Kafka client does."""
    client = confluent_kafka.Consumer(
        {"bootstrap.servers": bootstrap, "group.id": group, "auto.offset.reset": "earliest"}
    )
    client.subscribe([topic])
    message = client.poll(60)
    assert message is not None
    assert message.error() is None
    client.commit(asynchronous=False)
    client.close()


@pytest.fixture
def store(tmp_path: Path) -> AuditStore:
    return AuditStore(f"sqlite:///{tmp_path / 'audit.db'}")


def by_group(usage: SubjectUsage, number: int) -> dict[str | None, int]:
    version = usage.version(number)
    assert version is not None
    return {user.group: user.messages for user in version.read_by}


def test_every_user_of_a_version_is_known(
    topic: Topic,
    producer: Callable[..., Producer],
    broker: Service,
    registry: Service,
    store: AuditStore,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    addresses = (broker.address, registry.url)
    for application, cls, messages in (("old", topic.v1.Click, 3), ("new", topic.v2.Click, 5)):
        with producer(application=application) as sending:
            for number in range(messages):
                assert sending.send(cls(user=f"{number}", at=AT, count=number))
    # One producer of both versions, as in a deployment that is half done.
    with producer(application="both") as sending:
        for cls in (topic.v1.Click, topic.v2.Click, topic.v1.Click):
            assert sending.send(cls(user="x", at=AT, count=1))
    groups = {name: f"{name}-{topic.name}" for name in ("slow", "quick", "dicts", "plain")}
    # The old class cannot read the new version: it skips those messages.
    old = {"events": [topic.v1.Click], "on_poison": OnPoison.SKIP}
    read_all(groups["slow"], addresses, tmp_path, 5, **old)
    read_all(groups["quick"], addresses, tmp_path, 11, events=[topic.v2.Click])
    read_all(groups["dicts"], addresses, tmp_path, 11, topics=[topic.name])
    read_plainly(topic.name, groups["plain"], broker.address)

    subject = f"{topic.name}-value"
    with Reconciler(broker.address, registry.url, store) as reconciler:
        reconciler.catch_up()
    found = read_usage(store, RegistryClient(registry.url), subject, group_readers(broker.address))
    first, second = found.version(1), found.version(2)
    assert first is not None
    assert second is not None
    assert {u.application: u.messages for u in first.written_by} == {"old": 3, "both": 2}
    assert {u.application: u.messages for u in second.written_by} == {"new": 5, "both": 1}
    assert all(user.hosts for user in first.written_by)
    assert list(by_group(found, 1)) == [groups["slow"]]
    assert by_group(found, 1)[groups["slow"]] >= 5
    assert by_group(found, 2) == {groups["quick"]: 11}
    assert {user.group: user.messages for user in found.dict_readers} == {groups["dicts"]: 11}
    assert found.unknown_readers == (groups["plain"],)
    assert not (found.uncounted)
    assert not (found.unregistered_readers)
    assert not (found.other_writers)
    assert found.since is not None
    assert found.since <= first.written_by[-1].last_used
    assert SubjectUsage.from_dict(json.loads(json.dumps(found.as_dict()))) == found

    at = ["--bootstrap", broker.address, "--registry", registry.url]
    at += ["--store", f"sqlite:///{tmp_path / 'audit.db'}"]
    command_line()(["schema", "usage", subject, *at], standalone_mode=False)
    told = capsys.readouterr().out
    assert f"group {groups['slow']}" in told
    command_line()(["schema", "usage", subject, "--format", "json", *at], standalone_mode=False)
    shown = json.loads(capsys.readouterr().out)
    assert shown["unknown_readers"] == [groups["plain"]]
    assert shown["versions"][0]["version"] == 2
    command_line()(["schema", "rollout", subject, *at], standalone_mode=False)
    told, beside = capsys.readouterr()
    assert f"group {groups['slow']}" in told
    assert f"unknown readers: {groups['plain']}" in told
    assert "reports what it reads with audit=True" in beside

    arguments = ["console", "start", "--listen", "127.0.0.1:0", *at[:4]]
    arguments += ["--audit-store", at[5], "--schemas", str(tmp_path)]
    arguments += ["--warehouse", str(tmp_path / "warehouse")]
    with child_process.start(arguments) as console:
        answered = console_usage(console.url)(subject)
        assert console_usage(console.url)("never-value") is None
        page = urlopen(f"{console.url}/schemas/{subject}/usage").read().decode()
    assert answered is not None
    assert replace(answered, as_of=found.as_of) == found
    assert answered.as_of == 0  # no reconciler keeps this store
    assert groups["plain"] in page
    with pytest.raises(UnreachableError, match="no console answers"):
        console_usage(console.url)(subject)
