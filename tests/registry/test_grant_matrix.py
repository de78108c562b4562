"""Every route of the registry for every role on one name, under a prefix, on all names, on none."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from headworks._registry.security.route_rules import RULES, RuleTarget
from headworks._server import child_process
from headworks._server.security import Role
from headworks._server.security.users import new_secret, write_users
from tests.grantees import GRANTEES, NAME, Grantee, grants_file
from tests.registry.guarding import As, basic, start
from tests.registry.rest import record, text_of

pytestmark = pytest.mark.e2e

OWN, PREFIX = "shop.orders", "shop."
# The one name; a longer one that begins with it; another under the prefix; somebody else's; the
# same name in another context.
SUBJECTS = [OWN, f"{OWN}_archive", "shop.carts", "hr.salaries", f":.hr:{OWN}"]
SCHEMAS = {
    subject: text_of(record("id:long", name=f"Event{number}"))
    for number, subject in enumerate(SUBJECTS)
}
# In the registry, writer includes reader, and admin includes both.
ENOUGH = {
    Role.READER: {Role.READER, Role.WRITER},
    Role.WRITER: {Role.WRITER},
    Role.ADMIN: {Role.ADMIN},
}
GUARDED = sorted(route for route, rule in RULES.items() if rule.role is not None)


def guarded(folder: Path) -> child_process.Service:
    users = {one.user: new_secret(one.user) for one in GRANTEES}
    write_users(folder / "users", {**users, "root": new_secret("root")})
    grants = grants_file(name=OWN, prefix=PREFIX, on='["subjects"]')
    root = '[[grants]]\nto = ["root"]\nroles = ["admin"]\n'
    (folder / "access.toml").write_text(grants + root, encoding="utf-8")
    files = ["--users", str(folder / "users"), "--access", str(folder / "access.toml")]
    return start(folder, *files)


def log_in(running: child_process.Service, user: str) -> As:
    return As(running.url, basic(user, user))


def may(one: Grantee, role: Role, name: str) -> bool:
    return one.has(ENOUGH[role]) and one.covers(name, name=OWN, prefix=PREFIX)


@pytest.fixture(scope="module")
def empty(tmp_path_factory: pytest.TempPathFactory) -> Iterator[child_process.Service]:
    """A registry with nothing in it: an allowed request of the matrix changes nothing."""
    with guarded(tmp_path_factory.mktemp("empty")) as running:
        yield running


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Iterator[child_process.Service]:
    """A registry with SUBJECTS, each with a schema of its own."""
    with guarded(tmp_path_factory.mktemp("filled")) as running:
        root = log_in(running, "root")
        for subject, schema in SCHEMAS.items():
            reply = root("POST", f"/subjects/{subject}/versions", {"schema": schema})
            assert reply.status == 200, reply
        yield running


def refused(one: As, method: str, path: str, body: object = None) -> bool:
    reply = one(method, path, body)
    assert reply.status < 500, reply
    return reply.status == 403 and reply.code == 40301


def by_content(template: str) -> bool:
    """Whether the route asks who may read a subject that has the schema (tested below)."""
    return template.startswith(("/schemas/ids/", "/schemas/guids/"))


@pytest.mark.parametrize(("method", "template"), [r for r in GUARDED if not by_content(r[1])])
def test_a_route_is_open_to_the_role_on_that_name_alone(
    empty: child_process.Service, method: str, template: str
) -> None:
    rule = RULES[method, template]
    assert rule.role is not None
    body: object = {} if method in ("POST", "PUT") else None
    names = {RuleTarget.SUBJECT: [*SUBJECTS, ":.hr:"], RuleTarget.CONTEXT: [".hr", "%2E"]}.get(
        rule.on, [""]
    )
    wrong = []
    for one in GRANTEES:
        for name in names:
            path = template
            for key in ("{subject}", "{context}"):
                path = path.replace(key, name)
            for key in ("{version}", "{old}", "{new}"):
                path = path.replace(key, "1")
            path = path.replace("{rest:path}", "resources/-/x")
            if rule.on is RuleTarget.SOMEWHERE:
                expected = one.has(ENOUGH[rule.role])
            elif rule.on is RuleTarget.CONTEXT:
                expected = may(one, rule.role, f":{name}:" if name == ".hr" else "")
            else:
                expected = may(one, rule.role, name)
            if refused(log_in(empty, one.user), method, path, body) == expected:
                wrong.append((one.user, path, "refused" if expected else "let in"))
    assert not wrong


@pytest.mark.parametrize("one", GRANTEES, ids=lambda one: one.user)
def test_lists_and_schemas_show_what_the_grant_is_about(
    filled: child_process.Service, one: Grantee
) -> None:
    ask, root = log_in(filled, one.user), log_in(filled, "root")
    seen = [name for name in SUBJECTS if may(one, Role.READER, name)]
    if one.has(Role):
        assert sorted(ask("GET", "/subjects").body) == sorted(seen)
        listed = ask("GET", "/schemas?subjectPrefix=:*:").body
        assert sorted(row["subject"] for row in listed) == sorted(seen)
        assert (".hr" in ask("GET", "/contexts").body) == (f":.hr:{OWN}" in seen)
    else:
        assert refused(ask, "GET", "/subjects")
    for subject in SUBJECTS:
        number = root("GET", f"/subjects/{subject}/versions/1").body["id"]
        within = "?subject=:.hr:" if subject.startswith(":.hr:") else ""
        named = f"?subject={subject}"
        guid = root("GET", f"/schemas/ids/{number}{within}").body["guid"]
        for path in (
            f"/schemas/ids/{number}{within}",
            f"/schemas/ids/{number}{named}",
            f"/schemas/ids/{number}/schema{within}",
            f"/schemas/ids/{number}/subjects{within}",
            f"/schemas/ids/{number}/versions{within}",
            f"/schemas/guids/{guid}",
            f"/schemas/guids/{guid}/ids",
        ):
            for _ in range(2):  # the second time from memory
                assert refused(ask, "GET", path) == (subject not in seen), (path, subject)


@pytest.mark.parametrize("one", [o for o in GRANTEES if o.scope == NAME], ids=lambda o: o.user)
def test_a_name_reaches_no_other_by_reference_alias_or_import(
    filled: child_process.Service, one: Grantee
) -> None:
    ask = log_in(filled, one.user)
    for other in SUBJECTS[1:]:
        body = {
            "schema": text_of(record("x:int", name="Uses")),
            "references": [{"name": "Other", "subject": other, "version": 1}],
        }
        for path in (f"/subjects/{OWN}", f"/compatibility/subjects/{OWN}/versions/latest"):
            assert refused(ask, "POST", f"{path}?verbose=true", body), other
        assert refused(ask, "PUT", f"/config/{OWN}", {"alias": other}), other
    imported = {"schema": SCHEMAS[OWN], "id": 900, "version": 9}
    taken = refused(ask, "POST", f"/subjects/{OWN}/versions", imported)
    assert taken == (one.role is not Role.ADMIN)
