"""The gate, and the deploy step, against a live registry."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import urllib3

from headworks._ci.deploy import register
from headworks._ci.gate import check
from headworks._server.child_process import Service
from headworks.compatibility import Level, Policy
from headworks.errors import RefusedError, UnreachableError
from headworks.registry_client import RegistryClient
from tests.ci.conftest import ID, Work, event

pytestmark = pytest.mark.e2e

SCHEMAS = Path("schemas")


@pytest.fixture
def client(registry: Service) -> RegistryClient:
    return RegistryClient(registry.url)


def test_the_gate_and_the_registry_give_one_verdict(
    work: Work, client: RegistryClient, registry: Service
) -> None:
    work.git("checkout", "-q", "main")
    work.write("trips.avsc", event(ID, topic="gate.trips"))
    work.write(
        "governance.toml", '[default]\ncompatibility = "FULL_TRANSITIVE"\npolicy = "warehouse"\n'
    )
    work.commit()
    work.git("checkout", "-q", "-b", "later")
    against = [f"registry:{registry.url}"]
    assert check(SCHEMAS, against).subjects[0].notes == (f"new subject: not in {against[0]}",)

    (planned,) = register(SCHEMAS, client, dry_run=True)
    assert (planned.result, client.latest("gate.trips-value")) == ("would register", None)
    (first,) = register(SCHEMAS, client)
    assert (first.result, first.version) == ("registered", 1)
    held = client.compatibility("gate.trips-value")
    assert (held.level, held.policy) == (Level.FULL_TRANSITIVE, Policy.WAREHOUSE)
    (again,) = register(SCHEMAS, client)
    assert (again.result, again.version, again.id) == ("unchanged", 1, first.id)

    work.write("trips.avsc", event({"name": "id", "type": "double"}, topic="gate.trips"))
    verdict = check(SCHEMAS, [*against, "git:main"])
    gate = [one.finding for one in verdict.findings if str(one.against).startswith("registry")]
    assert [one.rule for one in gate] == ["HW002", "HW201"]
    assert len(verdict.findings) == 4, "git and registry at once"
    text = json.dumps(json.loads((work.schemas / "trips.avsc").read_text()))
    served = client.check("gate.trips-value", text)
    assert [(one.rule, one.message) for one in served] == [(one.rule, one.message) for one in gate]
    (refused,) = register(SCHEMAS, client, dry_run=True)
    assert [one.rule for one in refused.findings] == ["HW002", "HW201"]
    (refused,) = register(SCHEMAS, client)
    assert refused.refused
    assert [one.rule for one in refused.findings] == ["HW002", "HW201"]
    assert client.versions("gate.trips-value") == [1]


def test_an_unreachable_registry_is_never_a_pass(work: Work) -> None:
    with pytest.raises(UnreachableError):
        check(SCHEMAS, ["registry:http://127.0.0.1:9"])


def test_what_the_registry_refuses_by_itself_is_a_finding(
    work: Work, registry: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    against = [f"registry:{registry.url}"]
    work.write("trips.avsc", event(ID, topic="gate.own"))
    assert check(SCHEMAS, against).verdict == "pass"

    def too_large(*_: object) -> None:
        raise RefusedError("the schema is too large", status=422, code=42209)

    monkeypatch.setattr(RegistryClient, "check", too_large)
    (found,) = check(SCHEMAS, against).findings
    assert (found.finding.rule, found.finding.message) == ("HW303", "the schema is too large")
    assert found.file == "schemas/trips.avsc"

    def not_allowed(*_: object) -> None:
        raise RefusedError("who are you?", status=401)

    monkeypatch.setattr(RegistryClient, "check", not_allowed)
    with pytest.raises(RefusedError):
        check(SCHEMAS, against)


def test_going_back_to_a_registered_version_passes_as_it_does_at_registration(
    work: Work, client: RegistryClient, registry: Service
) -> None:
    more = {"name": "more", "type": "int", "default": 0}
    wide = {"name": "more", "type": "long", "default": 0}
    for fields in ((ID, more), (ID, wide)):
        work.write("trips.avsc", event(*fields, topic="gate.back"))
        list(register(SCHEMAS, client))
    work.write("trips.avsc", event(ID, more, topic="gate.back"))
    assert check(SCHEMAS, [f"registry:{registry.url}"]).verdict == "pass"
    (again,) = register(SCHEMAS, client)
    assert (again.result, again.version) == ("unchanged", 1)


def put(registry: Service, path: str, body: object) -> None:
    answer = urllib3.request("PUT", f"{registry.url}{path}", json=body)
    assert answer.status == 200, answer.data


@pytest.mark.parametrize("mode", ["READONLY", "IMPORT"])
@pytest.mark.parametrize("known", [False, True])
def test_the_gate_knows_the_mode_in_which_registering_would_fail(
    work: Work, client: RegistryClient, registry: Service, mode: str, known: bool
) -> None:
    topic = f"gate.{mode}.{known}".lower()
    subject, against = f"{topic}-value", [f"registry:{registry.url}"]
    work.write("trips.avsc", event(ID, topic=topic))
    if known:
        list(register(SCHEMAS, client))
        put(registry, f"/mode/{subject}?force=true", {"mode": mode})
        assert check(SCHEMAS, against).verdict == "pass", "there is nothing to register"
        more = {"name": "more", "type": "int", "default": 0}
        work.write("trips.avsc", event(ID, more, topic=topic))
    else:
        put(registry, f"/mode/{subject}?force=true", {"mode": mode})
    (found,) = check(SCHEMAS, against).findings
    assert found.finding.rule == "HW303"
    assert f"{against[0]} is in mode {mode} for {subject}" in found.finding.message
    (planned,) = register(SCHEMAS, client, dry_run=True)
    assert planned.refused
    (refused,) = register(SCHEMAS, client)
    assert refused.refused
    put(registry, f"/mode/{subject}?force=true", {"mode": "READWRITE"})
    assert check(SCHEMAS, against).verdict == "pass"
    assert not any(one.refused for one in register(SCHEMAS, client))


def test_the_gate_compares_within_the_registrys_compatibility_group(
    work: Work, client: RegistryClient, registry: Service
) -> None:
    subject, against = "gate.grouped-value", [f"registry:{registry.url}"]
    put(registry, f"/config/{subject}", {"compatibilityGroup": "major"})
    number = {"name": "size", "type": "int"}
    words = {"name": "size", "type": "string"}
    for major, field in (("1", number), ("2", words)):
        body = {
            "schema": json.dumps(event(ID, field, topic="gate.grouped")),
            "metadata": {"properties": {"major": major}},
        }
        answer = urllib3.request("POST", f"{registry.url}/subjects/{subject}/versions", json=body)
        assert answer.status == 200, answer.data
    more = {"name": "more", "type": "int", "default": 0}

    def both(*fields: object) -> tuple[str, str]:
        work.write("trips.avsc", event(*fields, topic="gate.grouped"))
        gate = check(SCHEMAS, against).verdict
        (planned,) = register(SCHEMAS, client, dry_run=True)
        return gate, planned.result

    assert both(ID, words, more) == ("pass", "would register"), "it takes over major 2"
    assert both(ID, {"name": "size", "type": "long"}) == ("refused", "refused")
    put(
        registry,
        f"/config/{subject}",
        {"compatibilityGroup": "major", "overrideMetadata": {"properties": {"major": "1"}}},
    )
    assert both(ID, {"name": "size", "type": "long"}) == ("pass", "would register")
    assert both(ID, words, more) == ("refused", "refused")
    put(
        registry,
        f"/config/{subject}",
        {"compatibilityGroup": "major", "overrideMetadata": {"properties": {"major": "3"}}},
    )
    assert both(ID, {"name": "size", "type": "bytes"}) == ("pass", "would register")
    assert [one.result for one in register(SCHEMAS, client)] == ["registered"]
    assert client.versions(subject) == [1, 2, 3]
