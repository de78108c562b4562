"""The prefix /contexts/.ctx: the same answers as with qualified names, and the same permissions."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from urllib.parse import parse_qsl

import pytest
from confluent_kafka.schema_registry import Schema, SchemaRegistryClient

from headworks._registry.model.refusals import ServiceError
from headworks._registry.security.enforcement import require_rule
from headworks._registry.security.route_rules import RULES
from headworks._registry.service.context_paths import without_context_prefix
from headworks.registry_client import RegistryClient
from tests.registry.guarding import As, basic, start, write_files
from tests.registry.rest import Rest, fresh, record, text_of

pytestmark = pytest.mark.e2e

EU = "%3A.eu%3A"


@pytest.mark.parametrize(
    ("path", "rewritten"),
    [
        ("/contexts/.eu/subjects/s/versions", f"/subjects/{EU}s/versions"),
        ("/contexts/eu/subjects/s", f"/subjects/{EU}s"),
        ("/contexts/:.eu:/subjects/s", f"/subjects/{EU}s"),
        ("/contexts/%3A.eu%3A/subjects/s%2Ft", f"/subjects/{EU}s%2Ft"),
        ("/contexts/.eu/subjects/subjects", f"/subjects/{EU}subjects"),
        ("/contexts/.eu/subjects/:.us:s", "/subjects/:.us:s"),
        ("/contexts/.eu/subjects/%3A.us%3As", "/subjects/%3A.us%3As"),
        (
            "/contexts/.eu/compatibility/subjects/s/versions",
            f"/compatibility/subjects/{EU}s/versions",
        ),
        ("/contexts/.eu/config", f"/config/{EU}"),
        ("/contexts/.eu/config/s", f"/config/{EU}s"),
        ("/contexts/.eu/mode/s", f"/mode/{EU}s"),
        ("/contexts/./config", "/config"),
        ("/contexts/./subjects/s", "/subjects/s"),
        ("/contexts/.eu/schemas/types", "/schemas/types"),
        ("/contexts/.eu/contexts", "/contexts"),
        ("/contexts/.eu", "/contexts/.eu"),
        ("/contexts", "/contexts"),
        ("/subjects/contexts", "/subjects/contexts"),
    ],
)
def test_paths(path: str, rewritten: str) -> None:
    assert without_context_prefix(path, b"a=1") == (rewritten, b"a=1")


@pytest.mark.parametrize(
    ("path", "query", "rewritten"),
    [
        ("/contexts/.eu/subjects", b"", [("subjectPrefix", ":.eu:")]),
        ("/contexts/.eu/schemas", b"subjectPrefix=s", [("subjectPrefix", ":.eu:s")]),
        ("/contexts/.eu/subjects", b"subjectPrefix=:*:", [("subjectPrefix", ":*:")]),
        ("/contexts/./subjects", b"", [("subjectPrefix", "")]),
        ("/contexts/.eu/schemas/ids/1", b"", [("subject", ":.eu:")]),
        (
            "/contexts/.eu/schemas/ids/1/subjects",
            b"subject=s%26t&deleted=true",
            [("deleted", "true"), ("subject", ":.eu:s&t")],
        ),
    ],
)
def test_queries(path: str, query: bytes, rewritten: list[tuple[str, str]]) -> None:
    found = without_context_prefix(path, query)[1].decode()
    assert parse_qsl(found, keep_blank_values=True) == rewritten


@pytest.mark.parametrize("context", [".a:b", ".a%3Ab", "%00", "%ff", "*:x"])
def test_what_is_no_context_is_refused(context: str) -> None:
    with pytest.raises(ServiceError, match="is not a context"):
        without_context_prefix(f"/contexts/{context}/subjects/s", b"")


def test_the_answers_are_those_of_qualified_names(rest: Rest) -> None:
    context, subject = f".{fresh('ctx')}", fresh()
    within, before = f"/contexts/{context}", f":{context}:"
    body = {"schema": text_of(record("a:int"))}
    assert rest.register(subject, record("other:string")).status == 200
    assert rest("POST", f"{within}/subjects/{subject}/versions", body).body["id"] == 1
    assert rest("PUT", f"{within}/config", {"compatibility": "NONE"}).status == 200
    for short, full in (
        (f"/subjects/{subject}/versions/1", f"/subjects/{before}{subject}/versions/1"),
        ("/subjects", f"/subjects?subjectPrefix={before}"),
        ("/schemas", f"/schemas?subjectPrefix={before}"),
        ("/schemas/ids/1", f"/schemas/ids/1?subject={before}"),
        ("/schemas/ids/1/subjects", f"/schemas/ids/1/subjects?subject={before}"),
        ("/schemas/ids/1/versions", f"/schemas/ids/1/versions?subject={before}"),
        ("/config", f"/config/{before}"),
        ("/schemas/types", "/schemas/types"),
        ("/contexts", "/contexts"),
    ):
        reply = rest("GET", within + short)
        assert reply == rest("GET", full), short
        assert reply.status == 200
    assert rest("GET", f"{within}/subjects").body == [f"{before}{subject}"]
    assert rest("POST", f"{within}/subjects/{subject}", body).body["version"] == 1
    checked = rest("POST", f"{within}/compatibility/subjects/{subject}/versions", body)
    assert checked.body == {"is_compatible": True}
    assert rest("DELETE", f"{within}/subjects/{subject}").body == [1]
    assert rest("GET", f"/subjects/{subject}/versions").body == [1], "of the default context"
    assert rest("GET", "/contexts/.a:b/subjects").code == 400


def test_clients_work_in_a_context(rest: Rest) -> None:
    context, subject = f".{fresh('ctx')}", fresh()
    url = f"{rest.url}/contexts/{context}"
    schema = Schema(text_of(record("a:int")), "AVRO")
    with SchemaRegistryClient({"url": url}) as client:
        registered = client.register_schema(subject, schema)
        assert client.get_latest_version(subject).schema_id == registered
        assert client.get_subjects() == [f":{context}:{subject}"]
    with SchemaRegistryClient({"url": url}) as another:
        assert json.loads(another.get_schema(registered).schema_str or "") == record("a:int")
    found = RegistryClient(url).latest(subject)
    assert found is not None
    assert found.subject == f":{context}:{subject}"


def test_permissions_are_those_of_the_rewritten_name(tmp_path: Path) -> None:
    """Grants of the file: `writer` writes under the prefix "shop." of the default context."""
    with start(tmp_path, *write_files(tmp_path)) as running:
        root, writer = (As(running.url, basic(name)) for name in ("root", "writer"))
        body = {"schema": text_of(record("a:int"))}
        at = "/contexts/.eu/subjects/shop.orders/versions"
        assert root("POST", at, body).status == 200
        assert writer("POST", "/subjects/shop.orders/versions", body).status == 200
        assert writer("POST", "/contexts/:.:/subjects/shop.orders/versions", body).status == 200
        for method, path in (
            ("POST", at),
            ("GET", f"{at}/1"),
            ("GET", "/contexts/.eu/config/shop.orders"),
            ("GET", "/contexts/.eu/schemas/ids/1?subject=shop.orders"),
            ("GET", "/contexts/shop./subjects/orders/versions"),
            ("DELETE", "/contexts/.eu/subjects/shop.orders"),
        ):
            reply = writer(method, path, body if method == "POST" else None)
            assert reply.code == 40301, (path, reply)
        assert writer("GET", "/contexts/.eu/subjects").body == []
        assert As(running.url, {})("GET", f"{at}/1").status == 401


def test_the_global_context_holds_settings_for_all_contexts(own: Rest) -> None:
    """The nearest wins: subject, context, `:.__GLOBAL:`. The default context has its own."""
    at = "/config/:.__GLOBAL:"
    try:
        assert own("PUT", at, {"compatibility": "FULL"}).status == 200
        for path in ("/config/:.gc:s", "/config/plain", "/config/:.gc:"):
            assert own("GET", f"{path}?defaultToGlobal=true").body["compatibilityLevel"] == "FULL"
        assert own("GET", "/config").body["compatibilityLevel"] == "FULL"
        own("PUT", "/config", {"compatibility": "NONE"})
        own("PUT", "/config/:.gc2:", {"compatibility": "FORWARD"})
        levels = {
            name: own("GET", f"/config/{name}?defaultToGlobal=true").body["compatibilityLevel"]
            for name in ("plain", ":.gc:s", ":.gc2:s")
        }
        assert levels == {"plain": "NONE", ":.gc:s": "FULL", ":.gc2:s": "FORWARD"}
        assert own("PUT", "/mode/:.__GLOBAL:", {"mode": "READONLY"}).status == 200
        assert own("GET", "/mode").body == {"mode": "READONLY"}
        assert own.register(fresh(), record("id:long")).code == 42205
        own("DELETE", "/mode/:.__GLOBAL:")
        assert own.register(":.__GLOBAL:s", record("id:long")).code == 42208
        assert ".__GLOBAL" not in own("GET", "/contexts").body
    finally:
        for path in (at, "/config", "/mode/:.__GLOBAL:", "/config/:.gc2:"):
            own("DELETE", path)
    assert own("GET", "/config/:.gc:s?defaultToGlobal=true").body == {
        "compatibilityLevel": "BACKWARD_TRANSITIVE"
    }


def test_only_an_admin_of_everything_changes_the_global_context() -> None:
    def has(_role: object, name: str) -> bool:
        return name.startswith(":.")  # a grant on all named contexts

    one: Any = SimpleNamespace(principal=SimpleNamespace(name="eve"), has=has, may=has)
    for route in (("PUT", "/config/{subject}"), ("PUT", "/mode/{subject}")):
        require_rule(one, RULES[route], ":.eu:")
        with pytest.raises(ServiceError, match="on all subjects"):
            require_rule(one, RULES[route], ":.__GLOBAL:")
    with pytest.raises(ServiceError, match="on all subjects"):
        require_rule(one, RULES["DELETE", "/contexts/{context}"], ".__GLOBAL")
