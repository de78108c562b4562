"""The console for every role on one name, under a prefix, on all names, on none."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from typing import Any

import pytest

from headworks._server.security import Role
from tests.console.fetch import Fetch
from tests.console.stage import TOPICS, Stage, guarded_console
from tests.console.test_guarded import wait_for_sources
from tests.grantees import GRANTEES, Grantee, grants_file

pytestmark = pytest.mark.e2e

# The name is that of one topic or subject; two begin with the prefix.
OWN_TOPIC, TOPIC_PREFIX = "airlines", "air"
OWN_SUBJECT, SUBJECT_PREFIX = "airlines-value", "air"
OWN_GROUP, GROUP_PREFIX = "archive-export", "archive"
GROUPS = ("archive-export", "punctuality-dashboard")
SUBJECTS = [f"{topic}-value" for topic in TOPICS]


@pytest.fixture(scope="module")
def guarded(stage: Stage, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fetch]:
    users = [one.user for one in GRANTEES] + ["root", "stem"]
    grants = (
        grants_file(name=OWN_TOPIC, prefix=TOPIC_PREFIX, on='["topics"]')
        + grants_file(name=OWN_SUBJECT, prefix=SUBJECT_PREFIX, on='["subjects"]')
        + grants_file(name=OWN_GROUP, prefix=GROUP_PREFIX, on='["groups"]')
        + '[[grants]]\nto = ["root"]\nroles = ["admin"]\n'
        + f'[[grants]]\nto = ["stem"]\nroles = ["admin"]\nname = "{TOPIC_PREFIX}"\n'
    )
    folder, passwords = tmp_path_factory.mktemp("guarded"), {user: user for user in users}
    with guarded_console(stage, folder, passwords, grants) as url:
        fetch = Fetch(url)
        for path in ("/home", "/topics", "/schemas", "/groups", "/loads"):
            wait_for_sources(fetch, credentials("root"), f"{path}.json")
        yield fetch


@pytest.fixture(scope="module")
def forms(guarded: Fetch) -> list[tuple[str, tuple[str, str, str], int]]:
    """Every page and its JSON, what it is about, and what answers somebody who may see all."""
    found = []
    for path, about in pages():
        base, mark, query = path.partition("?")
        found += [
            (form, about, guarded(form, headers=credentials("root")).status)
            for form in (path, f"{base}.json{mark}{query}")
        ]
    return found


def credentials(user: str) -> dict[str, str]:
    pair = base64.b64encode(f"{user}:{user}".encode()).decode()
    return {"Authorization": f"Basic {pair}"}


def sees(one: Grantee, asked: str, name: str, prefix: str) -> bool:
    """Every role is enough to see a thing."""
    return one.has(Role) and one.covers(asked, name=name, prefix=prefix)


def pages() -> list[tuple[str, tuple[str, str, str]]]:
    """The page of each thing, with the name of the thing, the granted name, and the prefix."""
    found = []
    for topic in TOPICS:
        about = (topic, OWN_TOPIC, TOPIC_PREFIX)
        found += [
            (f"/topics/{topic}/messages", about),
            (f"/topics/{topic}/messages/0/0", about),
            (f"/audit/{topic}/windows", about),
            (f"/tables/{topic}/columns", about),
            (f"/topics/{topic}/charts", about),
            (f"/topics/{topic}/lineage", about),
        ]
    for subject in SUBJECTS:
        about = (subject, OWN_SUBJECT, SUBJECT_PREFIX)
        found += [(f"/schemas/{subject}/versions", about), (f"/try?subject={subject}", about)]
    return [*found, *((f"/groups/{g}/lag", (g, OWN_GROUP, GROUP_PREFIX)) for g in GROUPS)]


@pytest.mark.parametrize("one", GRANTEES, ids=lambda one: one.user)
def test_a_page_is_there_for_the_role_on_that_name_alone(
    guarded: Fetch, forms: list[tuple[str, tuple[str, str, str], int]], one: Grantee
) -> None:
    wrong = []
    for form, about, there in forms:
        status = guarded(form, headers=credentials(one.user)).status
        if status != (there if sees(one, *about) else 404):
            wrong.append((form, status))
    assert not wrong


@pytest.mark.parametrize("one", GRANTEES, ids=lambda one: one.user)
def test_lists_name_what_the_grant_is_about(guarded: Fetch, one: Grantee) -> None:
    def text(path: str) -> str:
        answer = guarded(path, headers=credentials(one.user))
        assert answer.status == 200
        return answer.body

    everything: list[tuple[str, tuple[Any, ...], str, str]] = [
        ("/topics", TOPICS, OWN_TOPIC, TOPIC_PREFIX),
        ("/loads", TOPICS, OWN_TOPIC, TOPIC_PREFIX),
        ("/home", TOPICS, OWN_TOPIC, TOPIC_PREFIX),
        ("/audit", TOPICS, OWN_TOPIC, TOPIC_PREFIX),
        ("/schemas", tuple(SUBJECTS), OWN_SUBJECT, SUBJECT_PREFIX),
        ("/groups", GROUPS, OWN_GROUP, GROUP_PREFIX),
    ]
    for path, names, name, prefix in everything:
        for form in (path, f"{path}.json"):
            shown = text(form)
            seen = {each for each in names if each in shown}
            assert seen == {each for each in names if sees(one, each, name, prefix)}, form


def test_a_name_is_no_prefix(guarded: Fetch) -> None:
    """Two topics and two subjects begin with the name that is granted; none has it."""
    for path, _ in pages():
        assert guarded(path, headers=credentials("stem")).status == 404, path
    for path in ("/topics", "/loads", "/home", "/audit", "/schemas"):
        shown = guarded(path, headers=credentials("stem")).body
        assert not [name for name in (*TOPICS, *SUBJECTS) if name in shown], path
