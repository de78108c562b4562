"""RegistryClient: what it asks for once, what it repeats, what it makes of every refusal."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor

import pytest

from headworks._server.child_process import Service
from headworks.compatibility import Level, Policy
from headworks.errors import RefusedError, UnreachableError, UsageError
from headworks.registry_client import (
    Compatibility,
    IncompatibleSchemaError,
    Reference,
    Registered,
    RegistryClient,
)
from tests.registry.prepared_server import canned
from tests.registry.rest import fresh, record, text_of

pytestmark = pytest.mark.e2e

V1 = text_of(record("id:long"))
V2 = text_of(record("id:long", "n:int=0"))
BROKEN = text_of(record("id:long", "n:int"))


@pytest.fixture
def client(registry: Service) -> RegistryClient:
    return RegistryClient(registry.url)


def test_register_look_up_and_read(client: RegistryClient) -> None:
    subject = fresh("a/b é")
    assert client.latest(subject) is None
    assert client.lookup(subject, V1) is None
    assert client.versions(subject) == []
    assert client.history(subject) == []
    one = client.register(subject, V1)
    assert one.version == 1
    assert client.register(subject, V1) == one
    two = client.register(subject, V2)
    assert two == Registered(two.id, 2)
    assert client.lookup(subject, V2) == two
    latest = client.latest(subject)
    assert latest is not None
    assert (latest.subject, latest.version, latest.id) == (subject, 2, two.id)
    assert client.schema_text(two.id) == latest.text
    assert [v.version for v in client.history(subject)] == [1, 2]
    assert client.version(subject, 1).id == one.id
    assert subject in client.subjects()
    with pytest.raises(RefusedError) as absent:
        client.version(subject, 7)
    assert (absent.value.status, absent.value.code) == (404, 40402)
    assert absent.value.fix == "`headworks schema list` shows the subjects and their versions"


def test_refusals_carry_findings(client: RegistryClient) -> None:
    subject = fresh()
    client.register(subject, V1)
    with pytest.raises(IncompatibleSchemaError, match="incompatible schema") as refused:
        client.register(subject, BROKEN)
    [finding] = refused.value.findings
    assert (finding.path, finding.writer_version) == ("n", 1)
    assert refused.value.exit_code == 1
    assert client.check(subject, BROKEN) == [finding]
    assert client.check(subject, BROKEN, "latest") == [finding]
    assert client.check(subject, V2, 1) == []
    assert client.check(fresh(), V1) == []
    for ask in (client.register, client.check):
        with pytest.raises(RefusedError, match="nope") as invalid:
            ask(subject, '{"type":"nope"}')
        assert invalid.value.code == 42201


def test_levels_and_policies(client: RegistryClient) -> None:
    subject = fresh()
    strict = Compatibility(Level.BACKWARD_TRANSITIVE, Policy.STRICT)
    assert client.compatibility() == client.compatibility(subject) == strict
    loaded = client.compatibility(f"{subject}-value")
    assert loaded == Compatibility(Level.BACKWARD_TRANSITIVE, Policy.WAREHOUSE)
    client.set_compatibility(subject, Level.FULL, Policy.STRICT)
    client.set_compatibility(subject, "FORWARD")
    assert client.compatibility(subject) == Compatibility(Level.FORWARD, Policy.STRICT)


def test_schemas_with_references_come_complete(client: RegistryClient) -> None:
    base, user = fresh(), fresh()
    client.register(base, text_of(record("s:string", name="Address", namespace="geo")))
    used = Reference("geo.Address", base, 1)
    one = client.register(user, text_of(record("home:geo.Address")), references=[used])
    assert '"name":"s"' in client.schema_text(one.id)
    latest = client.latest(user)
    assert latest is not None
    assert latest.references == (used,)
    again = client.lookup(user, text_of(record("home:geo.Address")), references=[used])
    assert again == one


def test_ids_are_of_a_context(client: RegistryClient) -> None:
    base, user = f":.eu:{fresh()}", f":.eu:{fresh()}"
    client.register(base, text_of(record("s:string", name="Address", namespace="geo")))
    used = Reference("geo.Address", base, 1)
    one = client.register(user, text_of(record("home:geo.Address")), references=[used])
    assert '"name":"s"' in client.schema_text(one.id, user)
    assert {found.subject for found in client.list_versions(":*:")} >= {base, user}
    assert not {found.subject for found in client.list_versions()} & {base, user}


def test_a_schema_is_asked_for_once() -> None:
    with canned((200, {"schema": V1})) as (url, requests):
        client = RegistryClient(url)
        with ThreadPoolExecutor(4) as pool:
            assert set(pool.map(client.schema_text, [3] * 50)) == {V1}
        assert set(requests) == {"GET /schemas/ids/3"}
        assert len(requests) <= 4


def test_trouble_is_repeated_and_mistakes_are_not() -> None:
    pauses: list[float] = []
    with canned((503, {}), (502, b"<html>"), (200, ["s"])) as (url, requests):
        assert RegistryClient(url, sleep=pauses.append).subjects() == ["s"]
        assert (len(requests), pauses) == (3, [0.1, 0.2])
    with canned((504, {})) as (url, requests), pytest.raises(UnreachableError, match="504"):
        RegistryClient(url, sleep=pauses.append).subjects()
    assert len(requests) == 4
    with canned((500, {"error_code": 500, "message": "m"})) as (url, requests):
        with pytest.raises(RefusedError, match=r"\(500\): m"):
            RegistryClient(url).subjects()
        assert len(requests) == 1


def test_a_registry_whose_store_is_away_is_asked_again() -> None:
    away = (500, {"error_code": 50001, "message": "m"})
    with canned(away, (200, ["s"])) as (url, requests):
        assert RegistryClient(url, sleep=lambda _: None).subjects() == ["s"]
        assert len(requests) == 2
    with canned(away) as (url, requests), pytest.raises(UnreachableError) as unreachable:
        RegistryClient(url, sleep=lambda _: None).subjects()
    assert len(requests) == 4
    assert "cannot reach its store (50001): m" in unreachable.value.message
    assert unreachable.value.exit_code == 3


def test_nobody_there() -> None:
    pauses: list[float] = []
    client = RegistryClient("http://user:secret@127.0.0.1:1", timeout=0.2, sleep=pauses.append)
    with pytest.raises(UnreachableError) as unreachable:
        client.latest("s")
    assert len(pauses) == 3
    assert "http://127.0.0.1:1" in str(unreachable.value)
    assert "headworks registry start" in str(unreachable.value)
    assert "secret" not in str(unreachable.value)
    assert unreachable.value.exit_code == 3


def test_something_else_there() -> None:
    with (
        canned((200, b"<html>hello")) as (url, _),
        pytest.raises(RefusedError, match="is not a schema registry"),
    ):
        RegistryClient(url).subjects()
    with pytest.raises(UsageError, match="is not the address of a schema registry"):
        RegistryClient("localhost:8081")


def test_other_registries() -> None:
    """Registries before Confluent 8 answer a registration with the id alone, a 409 with 409."""
    with canned((200, {"id": 4}), (200, {"id": 4, "version": 2})) as (url, requests):
        assert RegistryClient(url).register("s", V1) == Registered(4, 2)
        assert requests == ["POST /subjects/s/versions", "POST /subjects/s"]
    with (
        canned((409, {"error_code": 409, "message": "no default"})) as (url, _),
        pytest.raises(IncompatibleSchemaError, match="no default") as refused,
    ):
        RegistryClient(url).register("s", V1)
    assert refused.value.findings == ()


def test_a_forked_child_opens_its_own_connections(client: RegistryClient) -> None:
    client.subjects()
    child = os.fork()
    if child == 0:
        try:
            client.subjects()
        except BaseException:
            os._exit(1)
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    assert client.subjects() is not None
