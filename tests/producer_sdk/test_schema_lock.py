"""`schemas.lock`: ids that are reviewed, and that a producer starts with while nothing answers."""

from __future__ import annotations

import importlib
import json
import subprocess
import threading
from pathlib import Path
from typing import Any

import pytest

from headworks._audit_counting.event import AuditCount
from headworks._server import child_process
from headworks._server.child_process import Service
from headworks.codec import event_type
from headworks.errors import UnreachableError, UsageError
from headworks.registry_client import RegistryClient
from headworks.registry_client._schema_ids import EventSchemaIds
from headworks.registry_client._schema_lock import read_lock
from producer_sdk import Producer
from tests.command_line import run_command
from tests.producer_sdk.events import visit_schema

pytestmark = pytest.mark.e2e


def gen(folder: Path, *more: str) -> subprocess.CompletedProcess[str]:
    places = (str(folder / "schemas"), "--out", str(folder / "locked_events"))
    return run_command("gen", *places, *more)


def test_a_lock_is_written_checked_and_used(
    tmp_path: Path, registry: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "schemas").mkdir()
    path = tmp_path / "schemas" / "visit.avsc"
    path.write_text(visit_schema("locked-visits", 1))
    refused = gen(tmp_path, "--lock", "--registry", registry.url)
    assert refused.returncode == 1
    assert "not registered" in refused.stderr
    assert "locked-visits-value" in refused.stderr

    known = RegistryClient(registry.url).register("locked-visits-value", path.read_text())
    assert gen(tmp_path, "--lock", "--registry", registry.url).returncode == 0
    file = tmp_path / "locked_events" / "schemas.lock"
    entry = json.loads(file.read_text())["schemas"]["locked-visits-value"]
    assert (entry["id"], entry["version"]) == (known.id, 1)
    assert gen(tmp_path, "--check").returncode == 0

    monkeypatch.syspath_prepend(tmp_path)
    visit = importlib.import_module("locked_events.web").Visit
    lock = read_lock(file)
    assert lock is not None
    assert lock.id_of(visit.__headworks__, registry.url) == known.id
    assert lock.id_of(visit.__headworks__, "http://another") is None

    path.write_text(visit_schema("locked-visits", 2))
    stale = gen(tmp_path, "--check")
    assert stale.returncode == 1
    assert "schemas.lock" in stale.stderr
    assert "--lock" in stale.stderr


@pytest.mark.parametrize(
    ("name", "way"),
    [("headworks.audit.AuditCount", "register --bundled"), ("web.Visit", "the deploy step")],
)
def test_an_unregistered_schema_names_the_command_that_registers_it(
    name: str, way: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(RegistryClient, "lookup", lambda *_: None)
    monkeypatch.setattr(event_type(AuditCount), "name", name)
    with pytest.raises(UsageError) as refused:
        EventSchemaIds("http://nowhere", tmp_path).find(AuditCount)
    assert way in str(refused.value.fix)


def test_threads_cache_ids_at_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    start = threading.Barrier(4)

    def remember(thread: int) -> None:
        ids = EventSchemaIds("http://nowhere", tmp_path)
        start.wait(60)
        for number in range(100):
            ids._remember(f"{thread} {number}", number)

    threads = [threading.Thread(target=remember, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert caplog.text == ""
    assert json.loads((tmp_path / "schema-ids.json").read_text())
    assert [path.name for path in tmp_path.iterdir()] == ["schema-ids.json"]


def test_a_new_machine_starts_with_the_lock_while_the_registry_is_away(
    tmp_path: Path,
    broker: Service,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    (tmp_path / "schemas").mkdir()
    text = visit_schema("away-visits", 1)
    (tmp_path / "schemas" / "visit.avsc").write_text(text)
    store = f"sqlite:///{tmp_path / 'r.db'}"
    with child_process.start(
        ["registry", "start", "--listen", "127.0.0.1:0", "--store", store]
    ) as registry:
        url = registry.url
        RegistryClient(url).register("away-visits-value", text)
        assert gen(tmp_path, "--lock", "--registry", url).returncode == 0
    (tmp_path / "locked_events").rename(tmp_path / "away_events")
    monkeypatch.syspath_prepend(tmp_path)
    visit = importlib.import_module("away_events.web").Visit
    options: dict[str, Any] = {"application": "new", "events": (visit,), "close_timeout": 0.5}
    with Producer(broker.address, url, state_dir=tmp_path / "fresh", **options):
        pass
    file = tmp_path / "away_events" / "schemas.lock"
    file.write_text(file.read_text().replace(url, "http://staging"))
    with pytest.raises(UnreachableError):
        Producer(broker.address, url, state_dir=tmp_path / "wrong", **options)
    assert f"schemas.lock has no ids of {url}, only of http://staging" in caplog.text
    file.unlink()
    with pytest.raises(UnreachableError):
        Producer(broker.address, url, state_dir=tmp_path / "fresher", **options)


def test_a_lock_holds_several_registries(tmp_path: Path, registry: Service) -> None:
    (tmp_path / "schemas").mkdir()
    text = visit_schema("many-visits", 1)
    (tmp_path / "schemas" / "visit.avsc").write_text(text)
    store = f"sqlite:///{tmp_path / 'r.db'}"
    with child_process.start(
        ["registry", "start", "--listen", "127.0.0.1:0", "--store", store]
    ) as staging:
        for url in (staging.url, registry.url):
            RegistryClient(url).register("other-value", visit_schema(url[-5:], 1))
            RegistryClient(url).register("many-visits-value", text)
            assert gen(tmp_path, "--lock", "--registry", url).returncode == 0
        assert gen(tmp_path, "--check").returncode == 0
        lock = read_lock(tmp_path / "locked_events" / "schemas.lock")
        assert lock is not None
        for url in (staging.url, registry.url):
            known = RegistryClient(url).lookup("many-visits-value", text)
            assert known is not None
            assert lock.registries[url]["many-visits-value"].id == known.id
    path = tmp_path / "schemas" / "visit.avsc"
    path.write_text(visit_schema("many-visits", 2))
    assert gen(tmp_path, "--check").returncode == 1
