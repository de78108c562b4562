"""Permissions on a running registry: every route, every role, and no way around."""

from __future__ import annotations

import asyncio
import http.client
import json
import sqlite3
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import urllib3
from fastapi import FastAPI
from fastapi.routing import APIRoute
from starlette.routing import Mount, Route

from headworks._registry.security.route_rules import RULES, RuleTarget
from headworks._registry.service import (
    compatibility,
    contexts_and_health,
    schemas,
    settings,
    subjects,
)
from headworks._registry.service.app import create_app
from headworks._registry.store import RegistryStore
from headworks._server import child_process
from headworks._server.security import Role
from headworks._server.security.http.authenticator import HttpAuthenticator
from headworks._server.security.http.options import SecurityOptions, open_authenticator
from headworks._server.security.http.permissions import PrincipalPermissions
from headworks._server.security.users import new_secret, write_users
from headworks.errors import UsageError
from tests.registry.guarding import GRANTS, As, basic, start, write_files
from tests.registry.rest import Reply, record, text_of

pytestmark = pytest.mark.e2e

V1 = text_of(record("id:long"))
OTHER = text_of(record("secret:string", name="Other"))


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[child_process.Service]:
    """A registry with two subjects, one under the grants' prefix and one beside it."""
    folder = tmp_path_factory.mktemp("guarded")
    with start(folder, *write_files(folder)) as running:
        root = As(running.url, basic("root"))
        assert root("POST", "/subjects/shop.orders/versions", {"schema": V1}).body["id"] == 1
        assert root("POST", "/subjects/pay.cards/versions", {"schema": OTHER}).body["id"] == 2
        assert root("POST", "/subjects/:.x:shop.orders/versions", {"schema": V1}).status == 200
        yield running


@pytest.fixture
def root(guarded: child_process.Service) -> As:
    return As(guarded.url, basic("root"))


@pytest.fixture
def reader(guarded: child_process.Service) -> As:
    return As(guarded.url, basic("reader"))


@pytest.fixture
def writer(guarded: child_process.Service) -> As:
    return As(guarded.url, basic("writer"))


@pytest.fixture
def anonymous(guarded: child_process.Service) -> As:
    return As(guarded.url, {})


def routes() -> Iterator[tuple[str, str]]:
    for part in (subjects, schemas, compatibility, settings, contexts_and_health):
        for route in part.router.routes:
            assert isinstance(route, APIRoute)
            for method in route.methods or ():
                yield method, route.path


def test_every_route_has_a_rule_and_every_rule_a_route(tmp_path: Path) -> None:
    made = create_app(RegistryStore(f"sqlite:///{tmp_path / 'r.db'}"))
    inside = made._app._app._app._app  # type: ignore[attr-defined]
    assert isinstance(inside, FastAPI)
    plain = {
        (method, route.path)
        for route in inside.routes
        if isinstance(route, Route)
        for method in route.methods or ()
        if method != "HEAD"
    }
    assert all(RULES[route].role is None for route in plain), "these do not pass the guard"
    mounted = [route.path for route in inside.routes if isinstance(route, Mount)]
    assert mounted == ["/docs/assets"], "nobody is asked who reads what is mounted"
    parts = len(inside.routes) - sum(isinstance(route, Route | Mount) for route in inside.routes)
    assert parts == 5, "a router that `routes` above does not look at"
    assert set(routes()) | plain == set(RULES)


# One request of each guarded route; names are of what reader and writer have no grant for.
PATHS = {
    "{subject}": "pay.cards",
    "{version}": "1",
    "{old}": "1",
    "{new}": "1",
    "{schema_id}": "2",
    "{guid}": "00000000-0000-0000-0000-000000000000",
    "{context}": ".y",
    "{rest:path}": "resources/-/pay.cards",
}


def path_of(template: str) -> str:
    for name, value in PATHS.items():
        template = template.replace(name, value)
    return template


@pytest.mark.parametrize(("method", "template"), sorted(RULES))
def test_a_route_asks_for_its_role(
    anonymous: As, reader: As, writer: As, method: str, template: str
) -> None:
    rule = RULES[method, template]
    path = path_of(template)
    body: object = {} if method in ("POST", "PUT") else None
    unknown = anonymous(method, path, body)
    if rule.role is None:
        assert unknown.status < 400
        return
    assert (unknown.status, unknown.code) == (401, 401)
    for one in (reader, writer):
        reply = one(method, path, body)
        if rule.on is RuleTarget.SOMEWHERE and not template.startswith("/schemas/ids/"):
            assert reply.status not in (401, 403), reply
        else:
            assert (reply.status, reply.code) == (403, 40301), reply


def test_roles_under_their_prefix(reader: As, writer: As, root: As) -> None:
    mine = "/subjects/shop.new/versions"
    assert reader("POST", mine, {"schema": V1}).code == 40301
    assert writer("POST", mine, {"schema": V1}).status == 200
    for one in (reader, writer):
        assert one("GET", "/subjects/shop.new/versions/latest").status == 200
        assert one("POST", "/subjects/shop.new", {"schema": V1}).status == 200
        check = "/compatibility/subjects/shop.new/versions"
        assert one("POST", check, {"schema": V1}).body["is_compatible"]
        assert one("GET", "/config/shop.new?defaultToGlobal=true").status == 200
        assert one("PUT", "/config/shop.new", {"compatibility": "NONE"}).code == 40301
        assert one("PUT", "/mode/shop.new", {"mode": "IMPORT"}).code == 40301
        assert one("DELETE", "/subjects/shop.new").code == 40301
        assert one("GET", "/audit").code == 40301
        assert one("PUT", "/config", {"compatibility": "NONE"}).code == 40301
        assert one("GET", "/config").status == 200
    assert root("DELETE", "/subjects/shop.new").status == 200
    assert root("POST", "/subjects/shop.new/undelete").status == 200
    assert root("PUT", "/config", {"compatibility": "BACKWARD_TRANSITIVE"}).status == 200


def test_lists_show_what_may_be_read(reader: As, root: As) -> None:
    seen = reader("GET", "/subjects").body
    assert seen
    assert all(name.startswith("shop.") for name in seen)
    assert {"shop.orders", "pay.cards", ":.x:shop.orders"} <= set(root("GET", "/subjects").body)
    assert all(one["subject"].startswith("shop.") for one in reader("GET", "/schemas").body)
    first = reader("GET", "/schemas?limit=1").body
    assert [one["subject"] for one in first] == seen[:1]
    assert reader("GET", "/contexts").body == ["."]
    assert root("GET", "/contexts").body == [".", ".x"]
    assert root("POST", "/subjects/pay.copy/versions", {"schema": V1}).body["id"] == 1
    assert "pay.copy" not in reader("GET", "/schemas/ids/1/subjects").body
    assert "pay.copy" in root("GET", "/schemas/ids/1/subjects").body
    versions = reader("GET", "/schemas/ids/1/versions").body
    assert {"subject": "shop.orders", "version": 1} in versions
    assert not [one for one in versions if one["subject"] == "pay.copy"]
    assert reader("GET", "/schemas/ids/2/subjects").code == 40301
    guid = root("GET", "/schemas/ids/1").body["guid"]
    assert reader("GET", f"/schemas/guids/{guid}").status == 200
    assert reader("GET", f"/schemas/guids/{guid}/ids").body == [{"context": ".", "id": 1}]
    secret = root("GET", "/schemas/ids/2").body["guid"]
    assert reader("GET", f"/schemas/guids/{secret}").code == 40301


@pytest.mark.parametrize("path", ["/schemas/ids/2", "/schemas/ids/2?subject=shop.orders"])
def test_a_schema_by_id_is_for_its_readers_also_from_memory(
    reader: As, root: As, anonymous: As, path: str
) -> None:
    for _ in range(3):
        assert reader("GET", path).code == 40301
        assert root("GET", path).body["schema"] == OTHER.replace(" ", "")
        assert anonymous("GET", path).status == 401
        assert As(root.rest.url, basic("reader", "wrong"))("GET", path).status == 401
    for _ in range(3):
        assert reader("GET", "/schemas/ids/1").status == 200
        assert reader("GET", "/schemas/ids/1?subject=shop.orders").body["subject"] == "shop.orders"
        assert anonymous("GET", "/schemas/ids/1").status == 401


def test_memory_serves_a_reader(reader: As) -> None:
    def hits() -> float:
        return _metrics(reader)["headworks_registry_fast_reads_total"]

    counted = []
    for _ in range(2):
        reader("GET", "/schemas/ids/1")
        before = hits()
        for _ in range(5):
            assert reader("GET", "/schemas/ids/1").status == 200
        counted.append(hits() - before)
    # Somewhere in it all may be forgotten once, when the store's last change is noticed.
    assert max(counted) == 5


def _metrics(one: As) -> dict[str, float]:
    text = one("GET", "/metrics").body
    lines = [line.rpartition(" ") for line in text.splitlines() if not line.startswith("#")]
    return {name: float(value) for name, _, value in lines}


def test_an_answer_that_names_a_subject_is_for_its_readers(reader: As, root: As) -> None:
    assert root("POST", "/subjects/pay.same/versions", {"schema": V1}).body["id"] == 1
    for _ in range(2):
        assert reader("GET", "/schemas/ids/1?subject=pay.same").code == 40301
        assert root("GET", "/schemas/ids/1?subject=pay.same").body["subject"] == "pay.same"


def test_references_need_a_reader(writer: As, root: As) -> None:
    body = {
        "schema": text_of(
            {"type": "record", "name": "U", "fields": [{"name": "o", "type": "Other"}]}
        ),
        "references": [{"name": "Other", "subject": "pay.cards", "version": 1}],
    }
    for path in (
        "/subjects/shop.uses/versions",
        "/subjects/shop.uses",
        "/compatibility/subjects/shop.uses/versions",
        "/compatibility/subjects/shop.uses/versions/latest",
    ):
        assert writer("POST", path, body).code == 40301
    absent = {**body, "references": [{"name": "Other", "subject": "pay.none", "version": 1}]}
    assert writer("POST", "/subjects/shop.uses/versions", absent).code == 40301
    assert root("POST", "/subjects/shop.uses/versions", body).status == 200


def test_an_alias_takes_an_admin_of_both(guarded: child_process.Service, tmp_path: Path) -> None:
    grants = GRANTS.replace('to = ["keeper"]', 'to = ["nobody"]')
    with start(tmp_path, *write_files(tmp_path, grants)) as running:
        root, keeper = As(running.url, basic("root")), As(running.url, basic("nobody"))
        assert root("POST", "/subjects/pay.cards/versions", {"schema": OTHER}).status == 200
        assert keeper("PUT", "/config/shop.peek", {"alias": "pay.cards"}).code == 40301
        assert keeper("PUT", "/config/shop.peek", {"alias": "shop.orders"}).status == 200
        assert root("PUT", "/config/shop.peek", {"alias": "pay.cards"}).status == 200
        # The audit log names who was proved, whatever the headers say.
        lying = {"X-Forwarded-For": "10.9.8.7", "X-Forwarded-User": "root", "Remote-User": "root"}
        assert keeper("GET", "/subjects/shop.peek/versions/1").body["subject"] == "pay.cards"
        assert keeper("PUT", "/config/shop.a", {"compatibility": "NONE"}, **lying).status == 200
        entries = root("GET", "/audit").body
        assert [(one["who"], one["action"], one["subject"]) for one in entries] == [
            ("root@127.0.0.1", "register", "pay.cards"),
            ("nobody@127.0.0.1", "config", "shop.peek"),
            ("root@127.0.0.1", "config", "shop.peek"),
            ("nobody@127.0.0.1", "config", "shop.a"),
        ]


def test_an_import_takes_an_admin(writer: As, root: As) -> None:
    assert root("PUT", "/mode/shop.imported", {"mode": "IMPORT"}).status == 200
    body = {"schema": V1, "id": 700, "version": 3}
    assert writer("POST", "/subjects/shop.imported/versions", body).code == 40301
    assert root("POST", "/subjects/shop.imported/versions", body).body["id"] == 700


def test_other_spellings_are_the_same_name(reader: As, writer: As) -> None:
    assert reader("GET", "/subjects/:.:shop.orders/versions").status == 200
    for spelling in (":.:pay.cards", "%70ay.cards", ":.x:shop.orders"):
        assert reader("GET", f"/subjects/{spelling}/versions").code == 40301, spelling
        assert writer("POST", f"/subjects/{spelling}/versions", {"schema": V1}).code == 40301
    assert reader("GET", "/subjects/shop.orders%2f..%2fpay.cards/versions").code == 40401


def test_a_context_is_not_entered_by_a_name_without_one(
    guarded: child_process.Service, root: As
) -> None:
    secret = text_of(record("x:int", name="Hidden"))
    path = "/subjects/:.vault:shop.hidden/versions"
    assert root("POST", path, {"schema": secret}).status == 200
    reader = As(guarded.url, basic("reader"))
    for request in (
        ("GET", "/subjects/shop.hidden/versions/latest", None),
        ("GET", "/subjects/shop.hidden/versions/1", None),
        ("GET", "/subjects/shop.hidden/versions/1/schema", None),
        ("GET", "/subjects/shop.hidden/metadata", None),
        ("GET", "/subjects/shop.hidden/diff/1/1", None),
        ("POST", "/subjects/shop.hidden", {"schema": secret}),
    ):
        reply = reader(*request)
        assert reply.status in (403, 404), (request, reply)
        assert "Hidden" not in json.dumps(reply.body)


def refused(reply: Reply, status: int, *words: str) -> None:
    assert (reply.status, reply.code) == (status, status)
    for word in words:
        assert word in reply.body["message"]


def test_credentials_that_will_not_do(guarded: child_process.Service) -> None:
    url = guarded.url
    refused(As(url, basic("reader", "wrong"))("GET", "/subjects"), 401, "password is wrong")
    refused(As(url, basic("stranger", "x"))("GET", "/subjects"), 401, "password is wrong")
    for header in ("Basic", "Basic !!!", "Basic YQ==", "Bearer abc", "Digest x", "", "Basic \xff"):
        reply = As(url, {"Authorization": header})("GET", "/subjects")
        assert reply.status == 401, header
    both = [basic(name)["Authorization"] for name in ("root", "reader")]
    assert ask_as_both(guarded.address, *both) == 401


def ask_as_both(address: str, *authorizations: str) -> int:
    """Send a header twice, which no ordinary client does; return the status."""
    connection = http.client.HTTPConnection(address)
    connection.putrequest("GET", "/subjects")
    for one in authorizations:
        connection.putheader("Authorization", one)
    connection.endheaders()
    status = connection.getresponse().status
    connection.close()
    return status


def test_a_401_says_how_to_authenticate(guarded: child_process.Service) -> None:
    reply = urllib3.request("GET", guarded.url + "/subjects")
    assert reply.headers["www-authenticate"] == ('Basic realm="Headworks", charset="UTF-8"')
    assert reply.headers["content-type"] == "application/vnd.schemaregistry.v1+json"
    denied = urllib3.request("GET", guarded.url + "/audit", headers=basic("reader"))
    assert denied.status == 403
    assert "www-authenticate" not in denied.headers


def test_changed_files_count_at_once(tmp_path: Path) -> None:
    with start(tmp_path, *write_files(tmp_path)) as running:
        reader = As(running.url, basic("reader"))
        assert reader("GET", "/subjects").status == 200
        (tmp_path / "access.toml").write_text("")
        time.sleep(1.2)
        assert reader("GET", "/subjects").code == 40301
        (tmp_path / "access.toml").write_text("not toml")
        time.sleep(1.2)
        assert reader("GET", "/subjects").status == 503
        assert reader("GET", "/health").status == 200
        (tmp_path / "access.toml").write_text(GRANTS)
        write_users(tmp_path / "users", {"reader": new_secret("new words")})
        time.sleep(1.2)
        assert reader("GET", "/subjects").status == 401
        assert As(running.url, basic("reader", "new words"))("GET", "/subjects").status == 200


def test_anonymous_readers(tmp_path: Path) -> None:
    with start(tmp_path, *write_files(tmp_path), "--anonymous", "read") as running:
        root, anonymous = As(running.url, basic("root")), As(running.url, {})
        assert root("POST", "/subjects/pay.cards/versions", {"schema": V1}).status == 200
        for _ in range(2):
            assert anonymous("GET", "/schemas/ids/1").status == 200
            assert anonymous("GET", "/schemas/ids/1?subject=pay.cards").status == 200
        assert anonymous("GET", "/subjects").body == ["pay.cards"]
        assert As(running.url, basic("nobody"))("GET", "/subjects").body == ["pay.cards"]
        refused(anonymous("POST", "/subjects/pay.cards/versions", {"schema": V1}), 401, "writer")
        refused(anonymous("GET", "/audit"), 401, "admin")
        refused(As(running.url, basic("nobody", "wrong"))("GET", "/subjects"), 401)


def allowed(security: HttpAuthenticator, headers: dict[str, str]) -> PrincipalPermissions:
    header = headers.get("Authorization")
    return asyncio.run(security.authenticate(None if header is None else header.encode()))


def test_users_without_grants_may_do_everything(tmp_path: Path) -> None:
    write_files(tmp_path, None)
    security = open_authenticator(SecurityOptions(users=tmp_path / "users"), print)
    assert security is not None
    assert allowed(security, basic("nobody")).may(Role.ADMIN, "any")
    assert not allowed(security, {}).may(Role.READER, "any")
    security.close()


def test_grants_without_users_are_for_the_anonymous(tmp_path: Path) -> None:
    access = tmp_path / "access.toml"
    access.write_text('[[grants]]\nto = ["anonymous"]\nroles = ["writer"]\nprefix = "open."\n')
    security = open_authenticator(SecurityOptions(access=access), print)
    assert security is not None
    anonymous = allowed(security, {})
    assert anonymous.may(Role.READER, "open.a")
    assert anonymous.may(Role.WRITER, ":.:open.a")
    assert not anonymous.may(Role.WRITER, ":.x:open.a")
    assert not anonymous.may(Role.READER, "shut.a")


@pytest.mark.parametrize(
    ("guarding", "words"),
    [
        (SecurityOptions(users=Path("/no/such/file")), "cannot read /no/such/file"),
        (SecurityOptions(access=Path("/no/such/file")), "cannot read /no/such/file"),
        (SecurityOptions(jwks="https://x/keys", issuer="x"), "--issuer and --audience"),
        (SecurityOptions(issuer="x"), "--jwks is missing"),
        (SecurityOptions(jwks="http://example.com/k", issuer="x", audience="y"), "is not safe"),
        (SecurityOptions(jwks="ftp://127.0.0.1/k", issuer="x", audience="y"), "is not safe"),
    ],
)
def test_options_that_do_not_fit(guarding: SecurityOptions, words: str) -> None:
    with pytest.raises(UsageError, match=words):
        open_authenticator(guarding, print)


def test_half_of_tls_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="only one of them"):
        start(tmp_path, "--tls-cert", "x")


def test_another_address_takes_authentication(tmp_path: Path) -> None:
    store = ["--store", f"sqlite:///{tmp_path / 'r.db'}"]
    everywhere = ["registry", "start", "--listen", "0.0.0.0:0", *store]
    with pytest.raises(UsageError, match="other machines can reach"):
        child_process.start([*everywhere, "--anonymous", "read"])
    child_process.start([*everywhere, *write_files(tmp_path)]).stop()


def test_passwords_are_nowhere(tmp_path: Path) -> None:
    log = tmp_path / "log"
    options = [*write_files(tmp_path), "--log-level", "debug", "--log-format", "json"]
    with start(tmp_path, *options, log_file=log) as running:
        for headers in (basic("root"), basic("root", "a wrong word"), {}):
            As(running.url, headers)("GET", "/subjects")
    written = log.read_text()
    assert "/subjects" in written
    store = sqlite3.connect(tmp_path / "registry.db")
    assert "words" not in "".join(store.iterdump())
    store.close()
    for secret in ("root's words", "a wrong word", basic("root")["Authorization"][6:]):
        assert secret not in written


def test_rules_say_the_least_that_is_needed() -> None:
    for (method, template), rule in RULES.items():
        if method in ("PUT", "DELETE") and "associations" not in template:
            assert rule.role is Role.ADMIN
        if "{subject}" in template:
            assert rule.on is RuleTarget.SUBJECT
