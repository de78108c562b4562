"""The page of dead letters: counts, no values, and a button for those who may write the topic."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest

from consumer_sdk import Consumer
from headworks._server import child_process
from headworks._server.child_process import Service
from headworks._server.security.users import new_secret, write_users
from producer_sdk import Producer
from tests.console.fetch import Answer, Fetch
from tests.console.test_guarded import credentials
from tests.producer_sdk.events import Site, new_site
from tests.waiting import until

pytestmark = pytest.mark.e2e

GRANTS = """
[[grants]]
to = ["root"]
roles = ["admin"]
[[grants]]
to = ["ada"]
roles = ["reader"]
on = ["topics", "groups"]
prefix = ""
[[grants]]
to = ["eve"]
roles = ["reader", "writer"]
on = ["topics"]
prefix = "visits"
"""
USERS = ("root", "ada", "eve")


class UnknownCustomer(Exception):  # noqa: N818 - an application's own name
    """An error of an application."""


@contextmanager
def started(folder: Path, broker: Service, registry: Service, *more: str) -> Iterator[Fetch]:
    places = ["--bootstrap", broker.address, "--registry", registry.url]
    places += ["--warehouse", str(folder / "warehouse"), *more]
    log, state = folder / "console.log", {"XDG_STATE_HOME": str(folder)}
    arguments = ["console", "start", "--listen", "127.0.0.1:0", *places]
    with child_process.start(arguments, env=state, log_file=log) as running:
        yield Fetch(running.url)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("console")


@pytest.fixture(scope="module")
def guarded(folder: Path, broker: Service, registry: Service) -> Iterator[Fetch]:
    users, access = folder / "users", folder / "access.toml"
    write_users(users, {name: new_secret(f"{name}-password") for name in USERS})
    access.write_text(GRANTS, encoding="utf-8")
    security = "--users", str(users), "--access", str(access)
    with started(folder, broker, registry, *security) as fetch:
        yield fetch


@pytest.fixture
def site(tmp_path: Path, broker: Service, registry: Service) -> Site:
    """A topic with three dead letters of the group `billing-TOPIC`."""
    site = new_site(tmp_path, broker.address, registry.url)
    with Producer(
        site.bootstrap, site.registry, application="test", state_dir=site.state
    ) as producer:
        for user in ("secret1", "secret2", "secret3"):
            producer.send_and_wait(site.visit(user), 60)
    with reading(site, group_of(site)) as consumer:
        for message in itertools.islice(consumer, 3):
            consumer.reject(f"who is {message.event.user}?", UnknownCustomer())
    return site


def group_of(site: Site) -> str:
    return f"billing-{site.topic}"


def reading(site: Site, group: str, **options: Any) -> Consumer[Any]:
    options |= {"bootstrap": site.bootstrap, "registry": site.registry}
    return Consumer([site.one.Visit], group=group, **options)


def page(site: Site) -> str:
    return f"/topics/{site.topic}/dead-letters"


def known(fetch: Fetch, site: Site, who: dict[str, str]) -> Any:
    """The data of the page, once the console knows the topics."""

    def asked() -> Any:
        answer = fetch(f"{page(site)}.json", headers=who)
        found = answer.json["data"] if answer.status == 200 else {}
        return found if found.get("rows") or found.get("hidden") else None

    return until(asked, 60)


def press(fetch: Fetch, site: Site, who: dict[str, str], to: str, **changed: str) -> Answer:
    form = {"group": group_of(site), "exception": "UnknownCustomer", "to": to, "sure": "yes"}
    headers = {**who, "Content-Type": "application/x-www-form-urlencoded"}
    body = urlencode({**form, **changed})
    return fetch(f"{page(site)}.json", headers=headers, method="POST", body=body)


def test_letters_are_counted_and_sent_back_by_those_who_may(
    guarded: Fetch, site: Site, folder: Path
) -> None:
    root, ada, eve = map(credentials, ("root", "ada", "eve"))
    found = known(guarded, site, root)
    (row,) = found["rows"]
    assert (row["group"], row["exception"], row["letters"], row["again"]) == (
        *(group_of(site), "UnknownCustomer"),
        *(3, 0),
    )
    html = guarded(page(site), headers=root).body
    assert "Send back" in html
    assert "secret1" not in html, "a reason may quote a masked field"
    read_only = guarded(page(site), headers=ada).body
    assert "UnknownCustomer" in read_only
    assert "<button>Send back" not in read_only
    refused = press(guarded, site, ada, "topic")
    assert refused.status == 403
    assert "you may not redrive" in refused.body
    hidden = known(guarded, site, eve)
    assert (hidden["rows"], hidden["hidden"], hidden["writes"]) == ([], True, True)
    assert press(guarded, site, eve, "topic").status == 404, "the group is not visible"

    sent = press(guarded, site, root, "topic").json["data"]["result"]
    assert sent == {"sent": [[site.topic, 3]], "left": []}
    again = press(guarded, site, root, "topic").json["data"]["result"]
    assert again == {"sent": [], "left": []}
    with reading(site, group_of(site)) as consumer:
        users = {message.event.user for message in itertools.islice(consumer, 3)}
    assert users == {"secret1", "secret2", "secret3"}
    lines = [line for line in (folder / "console.log").read_text().splitlines() if "redriv" in line]
    assert len(lines) == 2
    assert all("root" in line and site.topic in line for line in lines)


def test_a_reload_of_the_result_sends_nothing_again(guarded: Fetch, site: Site) -> None:
    root = credentials("root")
    known(guarded, site, root)
    form = {"group": group_of(site), "exception": "UnknownCustomer", "to": "topic", "sure": "yes"}
    headers = {**root, "Content-Type": "application/x-www-form-urlencoded"}
    answer = guarded(page(site), headers=headers, method="POST", body=urlencode(form))
    assert answer.status == 303
    for _ in range(2):
        shown = guarded(answer.headers["location"], headers=root)
        assert (shown.status, f"3 to {site.topic}" in shown.body) == (200, True)
    invented = f"{page(site)}?redriven=invented"
    assert 'role="status"' not in guarded(invented, headers=root).body


def test_one_group_alone_reads_what_is_sent_to_it(guarded: Fetch, site: Site) -> None:
    root = credentials("root")
    known(guarded, site, root)
    sent = press(guarded, site, root, "group").json["data"]["result"]["sent"]
    assert sent == [[f"{site.topic}.redriven.{group_of(site)}", 3]]
    with reading(site, group_of(site), redriven=True) as consumer:
        users = {message.event.user for message in itertools.islice(consumer, 3)}
    assert users == {"secret1", "secret2", "secret3"}


@pytest.mark.parametrize(
    "changed", [{"sure": ""}, {"exception": ""}, {"to": "elsewhere"}, {"group": "", "to": "group"}]
)
def test_a_form_that_names_no_letters_is_refused(
    guarded: Fetch, site: Site, changed: dict[str, str]
) -> None:
    root = credentials("root")
    known(guarded, site, root)
    assert press(guarded, site, root, **{"to": "topic", **changed}).status == 400


def test_a_page_of_another_origin_sends_nothing(guarded: Fetch, site: Site) -> None:
    root = credentials("root")
    known(guarded, site, root)
    foreign = {**root, "Origin": "http://evil.example", "Sec-Fetch-Site": "cross-site"}
    assert press(guarded, site, foreign, "topic").status == 403


def test_a_console_without_users_sends_nothing(
    tmp_path: Path, broker: Service, registry: Service, site: Site
) -> None:
    with started(tmp_path, broker, registry) as fetch:
        found = known(fetch, site, {})
        assert (found["writes"], found["rows"][0]["letters"]) == (False, 3)
        answer = press(fetch, site, {}, "topic")
        assert (answer.status, "you may not redrive" in answer.body) == (403, True)
