"""The deploy step: idempotent, dry on request, all or nothing for each subject."""

from __future__ import annotations

import copy
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from headworks._ci.deploy import register
from headworks._ci.gate import check
from headworks._server.child_process import Service
from headworks.compatibility import Level, Policy, check_level
from headworks.errors import SchemaError, UnreachableError
from headworks.registry_client import Compatibility, IncompatibleSchemaError, RegistryClient
from headworks.schema import parse
from headworks.schema._canonical import canonical_text
from tests.ci.conftest import ID, Work, event
from tests.headworks.compatibility.generate import Generator, mutate

pytestmark = pytest.mark.e2e

SCHEMAS = Path("schemas")


@pytest.fixture
def client(registry: Service) -> RegistryClient:
    return RegistryClient(registry.url)


def govern(work: Work, level: str, policy: str = "avro") -> None:
    text = f'[default]\ncompatibility = "{level}"\npolicy = "{policy}"\n'
    (work.schemas / "governance.toml").write_text(text)


def only(work: Work, topic: str, *fields: Any) -> str:
    (work.schemas / "trips.avsc").unlink(missing_ok=True)
    work.write("one.avsc", event(*fields, topic=topic))
    return f"{topic}-value"


def test_a_dry_run_says_all_and_writes_nothing(work: Work, client: RegistryClient) -> None:
    subject = only(work, "reg.dry", ID)
    govern(work, "FULL", "strict")
    before = client.compatibility(subject)
    assert before == Compatibility(Level.BACKWARD_TRANSITIVE, Policy.WAREHOUSE)
    (planned,) = register(SCHEMAS, client, dry_run=True)
    assert planned.result == "would register"
    assert planned.settings == f"{before.level}, {before.policy} -> FULL, strict"
    assert client.latest(subject) is None
    assert client.compatibility(subject) == before
    (done,) = register(SCHEMAS, client)
    assert (done.result, done.version, done.settings) == ("registered", 1, planned.settings)
    (again,) = register(SCHEMAS, client)
    assert (again.result, again.settings) == ("unchanged", None)
    govern(work, "BACKWARD_TRANSITIVE", "strict")
    (planned,) = register(SCHEMAS, client, dry_run=True)
    assert (planned.result, planned.settings) == (
        "unchanged",
        "FULL, strict -> BACKWARD_TRANSITIVE, strict",
    )
    assert client.compatibility(subject).level is Level.FULL


def test_a_refused_subject_stays_as_it_was_and_hinders_no_other(
    work: Work, client: RegistryClient
) -> None:
    subject = only(work, "reg.refused", ID)
    work.write("other.avsc", event(ID, topic="reg.other", name="Other"))
    list(register(SCHEMAS, client))
    held = client.compatibility(subject)
    govern(work, "FULL_TRANSITIVE", "warehouse")
    only(work, "reg.refused", ID, {"name": "more", "type": "int"})
    more = {"name": "more", "type": "int", "default": 0}
    work.write("other.avsc", event(ID, more, topic="reg.other", name="Other"))
    for dry_run in (True, False):
        refused, other = register(SCHEMAS, client, dry_run=dry_run)
        assert (refused.subject, refused.result) == (subject, "refused")
        assert [one.rule for one in refused.findings] == ["HW001"]
        assert other.result == ("would register" if dry_run else "registered")
    assert client.compatibility(subject) == held
    assert client.versions(subject) == [1]
    assert client.compatibility("reg.other-value").level is Level.FULL_TRANSITIVE


def test_a_level_that_is_relaxed_lets_the_schema_in(work: Work, client: RegistryClient) -> None:
    subject = only(work, "reg.relaxed", ID)
    govern(work, "FULL_TRANSITIVE")
    list(register(SCHEMAS, client))
    only(work, "reg.relaxed", {"name": "other", "type": "int"})
    govern(work, "NONE")
    (planned,) = register(SCHEMAS, client, dry_run=True)
    assert planned.result == "would register"
    (done,) = register(SCHEMAS, client)
    assert (done.result, done.version) == ("registered", 2)
    assert client.compatibility(subject).level is Level.NONE


def test_the_old_level_comes_back_if_the_schema_is_refused_all_the_same(
    work: Work, client: RegistryClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    subject = only(work, "reg.race", ID)
    govern(work, "FULL")
    list(register(SCHEMAS, client))
    only(work, "reg.race", ID, {"name": "more", "type": "int"})
    govern(work, "FORWARD")

    def somebody_was_faster(*_: Any, **__: Any) -> Any:
        raise IncompatibleSchemaError("409", [])

    monkeypatch.setattr(client, "register", somebody_was_faster)
    (refused,) = register(SCHEMAS, client)
    assert refused.refused
    assert client.compatibility(subject) == Compatibility(Level.FULL, Policy.AVRO)


def test_types_of_other_files_are_written_out(work: Work, client: RegistryClient) -> None:
    leg = {"type": "record", "name": "Leg", "namespace": "acme", "fields": [ID]}
    work.write("types/leg.avsc", leg)
    subject = only(work, "reg.legs", {"name": "leg", "type": "acme.Leg"})
    list(register(SCHEMAS, client))
    found = client.latest(subject)
    assert found is not None
    assert found.references == ()
    assert [field.name for field in parse(found.text).fields[0].type.fields] == ["id"]  # type: ignore[union-attr]


def test_nothing_is_sent_while_a_file_cannot_be_read(work: Work, client: RegistryClient) -> None:
    only(work, "reg.broken", ID)
    work.write("zzz.avsc", "{")
    with pytest.raises(SchemaError, match=r"schemas/zzz\.avsc"):
        list(register(SCHEMAS, client))
    assert client.latest("reg.broken-value") is None


def test_an_unreachable_registry(work: Work) -> None:
    with pytest.raises(UnreachableError):
        list(register(SCHEMAS, RegistryClient("http://127.0.0.1:9", sleep=lambda _: None)))


def _edits(rng: random.Random, schema: Any) -> Iterator[Any]:
    """One edit after the other of the same record; an edit may make it something else."""
    while True:
        edited = mutate(rng, copy.deepcopy(schema))
        yield edited if isinstance(edited, dict) and edited["type"] == "record" else None


LEVELS = [level for level in Level if level is not Level.NONE]


@pytest.mark.parametrize("seed", range(6))
def test_gate_dry_run_and_registry_give_one_verdict_over_any_history(
    work: Work, client: RegistryClient, registry: Service, seed: int
) -> None:
    """What passes is registered, and what is refused is refused by all, for the same reasons."""
    rng = random.Random(seed)
    (work.schemas / "trips.avsc").unlink()
    base = [f"registry:{registry.url}"]
    passed = refused = 0
    for history in range(4):
        topic = f"law.{seed}.{history}"
        subject = f"{topic}-value"
        level, policy = rng.choice(LEVELS), rng.choice(list(Policy))
        govern(work, level, policy)
        schema = Generator(rng).record(0)
        for _ in range(6):
            schema = next(one for one in _edits(rng, schema) if one is not None)
            work.write("one.avsc", {**schema, "headworks": {"topic": topic}})
            try:
                text = canonical_text(parse((work.schemas / "one.avsc").read_text()))
            except SchemaError:
                (one,) = check(SCHEMAS, base).findings
                assert one.finding.rule == "HW301"
                continue
            verdict = check(SCHEMAS, base)
            findings = [one.finding for one in verdict.findings]
            known = client.lookup(subject, text)
            if subject in client.subjects():
                served = [] if known is not None else client.check(subject, text)
            else:  # the registry learns the level and the policy with the first version
                served = check_level(parse(text), [], level, policy)
            assert [(f.rule, f.message) for f in findings] == [(f.rule, f.message) for f in served]
            (dry,) = register(SCHEMAS, client, dry_run=True)
            (real,) = register(SCHEMAS, client)
            assert verdict.refused == dry.refused == real.refused
            passed, refused = passed + (not real.refused), refused + real.refused
    assert passed > 3
    assert refused > 3
