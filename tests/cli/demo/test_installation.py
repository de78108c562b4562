"""The demo on an installation that runs (`--on FILE`): what it refuses, and what it takes away."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from headworks._cli.broker_address import topics_metadata
from headworks._cli.demo.installation import Installation, temporary_folder, temporary_subjects
from headworks._cli.stack.stack import register_platform_schemas
from headworks._server import child_process
from headworks._server.child_process import Service
from headworks.errors import RefusedError
from headworks.registry_client import RegistryClient
from tests.command_line import run_command

pytestmark = pytest.mark.e2e

SCHEMA = json.dumps({"type": "record", "name": "Airline", "fields": []})


@pytest.fixture(scope="module")
def own_registry(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    store = f"sqlite:///{tmp_path_factory.mktemp('registry') / 'registry.db'}"
    start = ["registry", "start", "--listen", "127.0.0.1:0", "--store", store]
    with child_process.start(start) as running:
        yield running


@pytest.fixture
def own_broker(tmp_path: Path) -> Iterator[Service]:
    """A broker without the topics of other tests, which may be the demo's."""
    start = ["broker", "start", "--listen", "127.0.0.1:0", "--data-dir", str(tmp_path / "log")]
    with child_process.start(start) as running:
        yield running


def settings(folder: Path, **values: str) -> Path:
    file = folder / "there.toml"
    file.write_text("".join(f'{name} = "{value}"\n' for name, value in values.items()))
    return file


def test_the_file_alone_says_what_is_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEADWORKS_METASTORE", "thrift://not-this:1")
    file = settings(tmp_path, bootstrap="k:1", registry="http://r", warehouse="hdfs://n:1/w/")
    there = Installation.read(file)
    assert (there.bootstrap, there.registry, there.metastore) == ("k:1", "http://r", None)
    assert there.tables == f"hdfs://n:1/w/headworks-demo-{there.run}"
    assert there.database == f"headworks_demo_{there.run}"
    assert Installation.read(file).run != there.run


def test_a_file_that_names_no_warehouse_is_refused(tmp_path: Path) -> None:
    done = run_command("demo", "--on", str(settings(tmp_path, bootstrap="k:1", registry="r")))
    assert done.returncode == 2
    assert "does not set bootstrap, registry, and warehouse" in done.stderr


def test_two_brokers_are_refused(tmp_path: Path) -> None:
    file = str(settings(tmp_path, bootstrap="k:1", registry="r", warehouse="w"))
    done = run_command("demo", "--on", file, "--bootstrap", "k:2")
    assert done.returncode == 2
    assert "--bootstrap and --on both name a broker" in done.stderr


def test_subjects_are_taken_away(own_registry: Service) -> None:
    client = RegistryClient(own_registry.url)
    with temporary_subjects(own_registry.url, ["a-value", "b-value"]):
        client.register("a-value", SCHEMA)
    assert "a-value" not in client.ask("GET", "/subjects?deleted=true")


def test_somebody_elses_subject_stops_the_demo_before_it_makes_a_topic(
    own_broker: Service, own_registry: Service, tmp_path: Path
) -> None:
    client = RegistryClient(own_registry.url)
    client.register("airlines-value", SCHEMA)
    where = {"bootstrap": own_broker.address, "registry": own_registry.url}
    file = settings(tmp_path, **where, warehouse=str(tmp_path / "warehouse"))
    done = run_command("demo", "--on", str(file))
    assert done.returncode == 2, done.stderr
    assert "already has the demo's airlines-value" in done.stderr
    assert "airlines" not in topics_metadata(own_broker.address)
    assert client.subjects() == ["airlines-value"]


def test_the_folder_is_taken_away(tmp_path: Path) -> None:
    there = Installation("k:1", "http://r", str(tmp_path))
    folder = Path(there.tables)
    with temporary_folder(there):
        folder.mkdir()
        (folder / "file").touch()
    assert not folder.exists()
    assert tmp_path.exists()


def test_platform_schemas_that_an_installation_has_stay(own_registry: Service) -> None:
    client = RegistryClient(own_registry.url)
    client.register("headworks.audit-value", SCHEMA)
    register_platform_schemas(own_registry.url, missing_only=True)
    assert client.version("headworks.audit-value", 1).version == 1
    with pytest.raises(RefusedError):
        client.version("headworks.audit-value", 2)
    assert "headworks.logs-value" in client.subjects()
