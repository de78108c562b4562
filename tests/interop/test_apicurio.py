"""Apicurio Registry, which has Confluent's interface, in the place of our registry and as a source.

It differs from Confluent's where ours had trusted it: its list of versions does not say what they
are versions of, and it has no settings for a subject without versions.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from headworks._ci.registry_import import import_registry
from headworks._cli.stack.ports import free_ports
from headworks.errors import HeadworksError
from headworks.registry_client import Reference, RegistryClient
from tests.broker.conftest import start_broker
from tests.interop import engines, maven
from tests.interop.programs import Program
from tests.registry.conftest import start_registry
from tests.registry.rest import record, text_of
from tests.waiting import until

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.spark,
    pytest.mark.minutes,
    pytest.mark.timeout(900),
]

_POM = Path(__file__).with_name("apicurio.xml")
_INTERFACE = "apis/ccompat/v7"
_CLICK = {
    **record("user_id:long", name="Click"),
    "headworks": {"topic": "clicks", "owner": "web"},
}
_CLICKS = 40


@pytest.fixture(scope="module")
def apicurio(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    java = engines.java_since(21)
    if java is None:
        pytest.skip("Apicurio needs Java 21: set JAVA_HOME to one")
    (archive,) = maven.fetch(_POM, "apicurio", "Apicurio Registry", "tar.gz")
    folder = tmp_path_factory.mktemp("apicurio")
    with tarfile.open(archive) as content:
        content.extractall(folder, filter="data")
    (port,) = free_ports(1)
    listen = [f"-Dquarkus.http.port={port}", "-Dquarkus.http.host=127.0.0.1"]
    deletes = "-Dapicurio.rest.deletion.artifact-version.enabled=true"
    jar = str(folder / "quarkus-run.jar")
    url = f"http://127.0.0.1:{port}/{_INTERFACE}"
    with Program([str(java), *listen, deletes, "-jar", jar], folder / "log") as program:
        program.start()
        client = RegistryClient(url, timeout=5)

        def answers() -> bool:
            program.check()
            try:
                return client.subjects() == []
            except HeadworksError:
                return False

        until(answers, 300)
        yield url


def test_its_versions_are_listed_and_imported_with_their_ids(apicurio: str, tmp_path: Path) -> None:
    theirs = RegistryClient(apicurio)
    city = record("name:string", name="City", namespace="acme")
    theirs.register("city-value", text_of(city))
    trip = {**record("id:long", name="Trip", namespace="acme")}
    trip["fields"].append({"name": "to", "type": "acme.City"})
    refers = Reference("acme.City", "city-value", 1)
    theirs.register("trips-value", text_of(trip), references=[refers])
    for extra in ([], ["b:int=0"], ["b:int=0", "c:int=0"]):
        theirs.register("orders-value", text_of(record("a:int", *extra, name="Order")))
    theirs.ask("DELETE", "/subjects/orders-value/versions/2")
    theirs.ask("PUT", "/config/orders-value", {"compatibility": "FULL"})

    listed = {(one.subject, one.version): one.id for one in theirs.list_versions(":*:")}
    numbers = {("city-value", 1), ("trips-value", 1), ("orders-value", 1), ("orders-value", 3)}
    assert set(listed) == numbers
    with start_registry(tmp_path) as running:
        ours = RegistryClient(running.url)
        result = import_registry(theirs, ours)
        assert result.is_equal, result.differences
        assert len(result.plan.versions) == 5
        found = ours.list_versions(":*:", deleted=True)
        assert {(one.subject, one.version) for one in found} == {*numbers, ("orders-value", 2)}
        assert {key: ours.version(*key).id for key in listed} == listed
        assert str(ours.compatibility("orders-value").level) == "FULL"
        assert import_registry(theirs, ours).plan.is_empty


def _headworks(
    folder: Path, *arguments: str, given: str = "", **settings: str
) -> subprocess.CompletedProcess[str]:
    """Run a command in a folder, with `given` on stdin and the settings."""
    return subprocess.run(
        [sys.executable, "-P", "-m", "headworks._cli", *arguments],
        capture_output=True,
        text=True,
        cwd=folder,
        env={**os.environ, **{f"HEADWORKS_{name}".upper(): settings[name] for name in settings}},
        input=given,
        timeout=300,
        check=False,
    )


def test_the_pipeline_runs_with_it(apicurio: str, tmp_path: Path) -> None:
    (tmp_path / "click.avsc").write_text(json.dumps(_CLICK))
    with start_broker(tmp_path / "broker") as broker:
        settings = {
            "registry": apicurio,
            "bootstrap": broker.address,
            "data_dir": str(tmp_path / "data"),
        }

        def headworks(*arguments: str, given: str = "") -> str:
            done = _headworks(tmp_path, *arguments, given=given, **settings)
            assert done.returncode == 0, done.stderr
            return done.stdout

        assert "registered" in headworks("schema", "register", "click.avsc")
        headworks("topic", "create", "clicks", "--partitions", "2")
        lines = [json.dumps({"user_id": number}) for number in range(_CLICKS)]
        headworks("produce", "clicks", given="\n".join(lines))
        read = headworks("consume", "clicks", "--max", str(_CLICKS), "--from", "earliest")
        assert len(read.splitlines()) == _CLICKS
        headworks("load", "run")
        query = "SELECT count(*) AS n, sum(user_id) AS s FROM clicks"
        found = json.loads(headworks("sql", query, "--format", "json"))
        assert found == [{"n": _CLICKS, "s": sum(range(_CLICKS))}]


def test_the_gate_compares_with_it(apicurio: str, tmp_path: Path) -> None:
    RegistryClient(apicurio).register("gate-value", text_of(record("a:int", name="Gate")))
    changed = {**record("a:string", name="Gate"), "headworks": {"topic": "gate"}}
    (tmp_path / "gate.avsc").write_text(json.dumps(changed))
    check = ["schema", "check", "gate.avsc", "--against", f"registry:{apicurio}"]
    done = _headworks(tmp_path, *check)
    assert done.returncode == 1, done.stderr
    assert "refused  gate-value" in done.stdout
