"""Subjects of any name: governance.toml maps files to them, and `adopt` writes the mapping."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path

import pytest
from typer.testing import CliRunner

from headworks._ci.deploy import register
from headworks._ci.gate import check
from headworks._ci.lint import lint_catalog
from headworks._cli.schema import schema_app
from headworks._server.child_process import Service
from headworks.errors import SchemaError, UsageError
from headworks.registry_client import RegistryClient
from producer_sdk._generator.package import events
from tests.ci.conftest import ID, Work, event

pytestmark = pytest.mark.e2e

SCHEMAS = Path("schemas")
GIT = ["git:main"]


@pytest.fixture
def client(registry: Service) -> RegistryClient:
    return RegistryClient(registry.url)


def key(type_: str = "long") -> dict[str, object]:
    field = {"name": "id", "type": type_, "doc": "The order."}
    return {
        "type": "record", "name": "OrderKey", "namespace": "acme", "doc": "A key.",
        "fields": [field],
    }  # fmt: skip


@pytest.fixture
def keyed(work: Work) -> Work:
    """A catalog with a key that is a record, one that is a string, and a record's own name."""
    work.git("checkout", "-q", "main")
    work.write("keys/orders.avsc", key())
    work.write("plain.avsc", '"string"')
    work.write("named.avsc", event(ID, name="Named"))
    work.write(
        "governance.toml",
        '[subjects."orders-key"]\nfile = "keys/orders.avsc"\n'
        '[subjects."trips-key"]\nfile = "plain.avsc"\n'
        '[subjects."acme.Named"]\nfile = "named.avsc"\n',
    )
    work.commit()
    work.git("checkout", "-q", "-B", "change")
    return work


def test_a_schema_names_its_own_subject(work: Work, client: RegistryClient) -> None:
    def named(type_: object, subject: str) -> dict[str, object]:
        return {"type": type_, "headworks": {"subject": subject}}

    work.git("checkout", "-q", "main")
    work.write("key.avsc", {**key(), "headworks": {"subject": "own-orders-key"}})
    work.write("plain.avsc", named("string", "own-plain-key"))
    work.write("list.avsc", {**named("array", "own-list-key"), "items": "long"})
    colour = {**named("enum", "acme.Colour"), "name": "acme.Colour", "symbols": ["RED", "BLUE"]}
    work.write("colour.avsc", colour)
    work.commit()
    work.git("checkout", "-q", "-B", "change")
    subjects = {one.file: one.subject for one in check(SCHEMAS, GIT).subjects}
    assert subjects == {
        "schemas/colour.avsc": "acme.Colour",
        "schemas/key.avsc": "own-orders-key",
        "schemas/list.avsc": "own-list-key",
        "schemas/plain.avsc": "own-plain-key",
        "schemas/trips.avsc": "trips-value",
    }
    work.write("plain.avsc", named("int", "own-plain-key"))
    work.write("colour.avsc", {**colour, "symbols": ["RED"]})
    found = check(SCHEMAS, GIT)
    assert {one.subject for one in found.findings} == {"own-plain-key", "acme.Colour"}
    done = {one.subject: one.result for one in register(SCHEMAS, client, dry_run=True)}
    assert done["own-list-key"] == "would register"
    work.write("key.avsc", {**key(), "headworks": {"subject": ""}})
    assert any(
        "Subject must be a name" in one.finding.message for one in check(SCHEMAS, GIT).findings
    )


def test_the_gate_and_the_generated_class_take_one_topic_from_a_subject(work: Work) -> None:
    def named(**attribute: str) -> None:
        work.write("trips.avsc", {**event(ID, name="Trip"), "headworks": attribute})

    named(subject="rides-value")
    assert "rides-value" in {one.subject for one in check(SCHEMAS, GIT).subjects}
    assert [subject for subject, _, _ in events([work.schemas])] == ["rides-value"]
    named(subject="rides-value", topic="rides")
    assert [subject for subject, _, _ in events([work.schemas])] == ["rides-value"]
    named(subject="rides-value", topic="trips")
    told = "topic trips and subject rides-value are of different topics"
    assert any(told in one.finding.message.lower() for one in check(SCHEMAS, GIT).findings)
    with pytest.raises(SchemaError, match=told):
        events([work.schemas])


def test_a_union_of_events_is_the_subject_of_its_branches(
    work: Work, client: RegistryClient
) -> None:
    work.git("checkout", "-q", "main")
    ride = event(ID, topic="rides", name="Ride")
    work.write("ride.avsc", ride)
    work.write("stop.avsc", event(ID, topic="rides", name="Stop"))
    work.write("rides.avsc", ["acme.Ride", "acme.Stop"])
    work.commit()
    work.git("checkout", "-q", "-B", "change")
    verdict = check(SCHEMAS, GIT)
    assert verdict.verdict == "pass"
    assert {one.file: one.subject for one in verdict.subjects if one.subject} == {
        "schemas/rides.avsc": "rides-value",
        "schemas/trips.avsc": "trips-value",
    }
    linted = {(one.subject, each.finding.rule) for one in lint_catalog(SCHEMAS).subjects
              for each in one.findings}  # fmt: skip
    assert ("rides-value", "HW406") in linted
    done = {one.subject: one.result for one in register(SCHEMAS, client)}
    assert done["rides-value"] == "registered"
    work.write("ride.avsc", {**ride, "fields": [{**ID, "type": "string"}]})
    assert {one.subject for one in check(SCHEMAS, GIT).findings} == {"rides-value"}
    work.write("ride.avsc", event(ID, topic="cars", name="Ride"))
    found = [one.finding.message for one in check(SCHEMAS, GIT).findings]
    assert any("these name cars, rides" in message for message in found)


def test_mapped_files_are_governed(keyed: Work, client: RegistryClient) -> None:
    verdict = check(SCHEMAS, GIT)
    assert verdict.verdict == "pass"
    subjects = {one.file: one.subject for one in verdict.subjects}
    assert subjects == {
        "schemas/keys/orders.avsc": "orders-key",
        "schemas/named.avsc": "acme.Named",
        "schemas/plain.avsc": "trips-key",
        "schemas/trips.avsc": "trips-value",
    }
    keyed.write("keys/orders.avsc", key("string"))
    keyed.write("plain.avsc", '"int"')
    found = check(SCHEMAS, GIT)
    assert {(one.subject, one.finding.rule) for one in found.findings} == {
        ("orders-key", "HW002"),
        ("trips-key", "HW002"),
    }
    assert all(one.impact is None for one in found.subjects if one.subject != "trips-value")
    results = {one.subject: one.result for one in register(SCHEMAS, client, dry_run=True)}
    assert results.keys() == {*subjects.values()}


def test_a_mapped_file_that_moves_keeps_its_history(keyed: Work) -> None:
    keyed.git("mv", "schemas/keys/orders.avsc", "schemas/order_key.avsc")
    text = (keyed.schemas / "governance.toml").read_text()
    keyed.write("governance.toml", text.replace("keys/orders.avsc", "order_key.avsc"))
    keyed.write("order_key.avsc", key("string"))
    (found,) = check(SCHEMAS, GIT).findings
    assert (found.subject, found.finding.rule) == ("orders-key", "HW002")


def test_keys_need_no_event_time(keyed: Work) -> None:
    rules = {one.finding.rule for one in lint_catalog(SCHEMAS / "keys").findings}
    assert rules == set()


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('[subjects.a]\nfile = "missing.avsc"\n', "does not exist"),
        ('[subjects.a]\nfile = "../trips.avsc"\n', "below"),
        ('[subjects.a]\nfile = 3\n', "below"),
        ('[subjects.a]\nfile = "trips.avsc"\n[subjects.b]\nfile = "./trips.avsc"\n', "both have"),
        ('[default]\nfile = "trips.avsc"\n', "means nothing"),
    ],
)  # fmt: skip
def test_a_wrong_mapping_is_refused(work: Work, text: str, words: str) -> None:
    work.write("governance.toml", text)
    with pytest.raises(UsageError, match=words):
        check(SCHEMAS, GIT)


def test_adopt_maps_a_catalog_to_a_registry(
    work: Work, client: RegistryClient, registry: Service
) -> None:
    client.register("adopt.orders-key", json.dumps(key()))
    client.register("adopt.plain-key", '{"type": "fixed", "name": "adopt.Plain", "size": 3}')
    trip = event(ID, topic="adopt.trips", name="AdoptedTrip")
    client.register("adopt.trips-value", json.dumps(trip))
    work.write("trips.avsc", trip)
    work.write("orders-key.avsc", key("string"))
    work.write("plain.avsc", '{"type": "fixed", "name": "adopt.Plain", "size": 3}')
    work.write("governance.toml", '# ours\n[default]\npolicy = "strict"')
    asked = ["adopt", "schemas", "--registry", registry.url, "--format", "json"]
    planned = CliRunner().invoke(schema_app, [*asked, "--dry-run"])
    assert planned.exit_code == 0, planned.output
    before = (work.schemas / "governance.toml").read_text()
    assert "orders-key" not in before
    done = CliRunner().invoke(schema_app, asked)
    assert done.stdout == planned.stdout
    text = (work.schemas / "governance.toml").read_text()
    assert text.startswith("# ours\n")
    assert tomllib.loads(text)["subjects"] == {
        "adopt.orders-key": {"file": "orders-key.avsc"},
        "adopt.plain-key": {"file": "plain.avsc"},
    }
    results = {one["file"]: one["result"] for one in json.loads(done.stdout)}
    assert results["schemas/trips.avsc"] == "names its subject"
    verdict = check(SCHEMAS, [f"registry:{registry.url}"])
    assert {(one.subject, one.finding.rule) for one in verdict.findings} == {
        ("adopt.orders-key", "HW002")
    }
    again = CliRunner().invoke(schema_app, asked)
    assert {one["result"] for one in json.loads(again.stdout)} == {
        "mapped already", "names its subject",
    }  # fmt: skip


def test_the_loaders_archive_is_no_part_of_a_catalog(work: Work) -> None:
    (work.schemas / "governance.toml").unlink()
    archive = "headworks-data/warehouse/_headworks/schemas"
    text = (work.schemas / "trips.avsc").read_text()
    for name in (f"{archive}/one.avsc", f"{archive}/two.avsc", ".venv/x/trips.avsc"):
        work.write(name, text)
    for path in (SCHEMAS, SCHEMAS / "trips.avsc"):
        (one,) = check(path, GIT).subjects
        assert one.file == "schemas/trips.avsc"
    # Two copies elsewhere are nobody's business, unless one of them is checked.
    for name in ("copies/a.avsc", "copies/b.avsc"):
        work.write(name, event(ID, topic="copies"))
    assert check(SCHEMAS / "trips.avsc", GIT).verdict == "pass"
    with pytest.raises(UsageError, match="both describe"):
        check(SCHEMAS / "copies", GIT)
