"""Dead letters: what they carry, which are chosen, and how they return."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import confluent_kafka
import pytest

from consumer_sdk import Consumer, Message
from consumer_sdk._dead_letters.letter import DeadLetter, letter_headers
from consumer_sdk._dead_letters.redrive import Redrive, RedriveOptions, RedriveReport
from consumer_sdk._dead_letters.selection import LetterSelection
from headworks._audit_counting import AUDIT_TOPIC
from headworks._kafka.client_properties import client_properties
from headworks._kafka.retry_topics import is_retry_topic, redriven_topic, retry_topic
from headworks._server.child_process import Service
from headworks.errors import UsageError
from producer_sdk import Producer
from tests.pipeline.test_consumer import command
from tests.producer_sdk.events import Site, new_site
from tests.soak import redrive as redrive_campaign
from tests.waiting import until

pytestmark = pytest.mark.e2e


class UnknownCustomer(Exception):  # noqa: N818 - an application's own name
    """An error of an application."""


@pytest.fixture
def site(tmp_path: Path, broker: Service, registry: Service) -> Site:
    return new_site(tmp_path, broker.address, registry.url)


def reading(site: Site, group: str, **options: Any) -> Consumer[Any]:
    return Consumer(
        [site.one.Visit],
        group=f"{group}-{site.topic}",
        bootstrap=site.bootstrap,
        registry=site.registry,
        **options,
    )


def take(consumer: Consumer[Any], count: int) -> list[Message[Any]]:
    found: list[Message[Any]] = []
    while len(found) < count:
        message = until(lambda: consumer.poll(1))
        assert message is not None
        found.append(message)
    return found


def die(site: Site, *users: str, group: str = "billing") -> None:
    """Send events, and let a group give them up."""
    with Producer(
        site.bootstrap, site.registry, application="test", state_dir=site.state
    ) as producer:
        for user in users:
            producer.send_and_wait(site.visit(user), 60, headers={"shop": "web"})
    with reading(site, group) as consumer:
        for message in itertools.islice(consumer, len(users)):
            consumer.reject(f"who is {message.event.user}?", UnknownCustomer())


def redrive(site: Site, **options: Any) -> RedriveReport:
    selection = options.pop("selection", LetterSelection())
    chosen = RedriveOptions(f"{site.topic}.dead-letter", selection, **options)
    client = client_properties(site.bootstrap)
    return Redrive(chosen, client, site.registry, site.state).run()


@pytest.mark.parametrize("text", ["bad \ud800 name", "long " * 1_000_000])
def test_any_error_of_a_handler_fits_into_a_letter(site: Site, text: str) -> None:
    raw = SimpleNamespace(headers=list, partition=lambda: 0, offset=lambda: 7)
    message: Any = raw
    found = dict(letter_headers(message, site.topic, "g", text, "ValueError", 5))
    reason = found["headworks.dead-letter.reason"]
    assert reason is not None
    assert reason.startswith((b"bad \\ud800 name", b"long long"))
    assert len(reason) < 11_000


def test_letters_return_as_they_were_and_once(site: Site) -> None:
    die(site, "ada", "bob")
    assert redrive(site).sent == {site.topic: 2}
    assert redrive(site).sent == {}, "the same redrive continues where it stopped"
    with reading(site, "all") as consumer:
        found = take(consumer, 4)
    by_user = sorted(found, key=lambda m: (m.event.user, m.offset))
    for first, again in zip(by_user[::2], by_user[1::2], strict=True):
        assert again.event == first.event
        assert (again.key, again.timestamp) == (first.key, first.timestamp)
        assert again.partition == first.partition
        origin = f"{site.topic}/{first.partition}/{first.offset}".encode()
        assert dict(again.headers) == {
            "shop": b"web",
            "headworks.redrives": b"1",
            "headworks.origin": origin,
        }


def test_a_letter_that_dies_again_is_sent_no_more_than_allowed(site: Site) -> None:
    die(site, "ada")
    for number in (1, 2):
        assert redrive(site, max_redrives=2).sent == {site.topic: 1}
        with reading(site, "billing") as consumer:
            (message,) = take(consumer, 1)
            assert dict(message.headers)["headworks.redrives"] == b"%d" % number
            consumer.reject("still unknown")
    last = redrive(site, max_redrives=2)
    assert (last.sent, last.left) == ({}, {"were redriven 2 times before": 1})
    assert redrive(site, max_redrives=3, name="again", maximum=1).sent == {site.topic: 1}


def test_one_group_alone_reads_what_is_redriven_to_it(site: Site) -> None:
    die(site, "ada")
    group = f"billing-{site.topic}"
    target = redriven_topic(site.topic, group)
    assert redrive(site, to_group=group).sent == {target: 1}
    with reading(site, "billing", redriven=True) as consumer:
        (message,) = take(consumer, 1)
        assert (message.topic, message.event) == (target, site.visit("ada"))
        consumer.reject("still unknown")
    with reading(site, "other") as other:
        take(other, 1)
        assert other.poll(1) is None
    assert redrive(site).sent == {site.topic: 2}, "both letters belong to the topic itself"


def test_letters_without_our_headers_and_of_missing_topics_stay(site: Site) -> None:
    die(site, "ada")
    source = f"{site.topic}.dead-letter"
    plain = confluent_kafka.Producer({"bootstrap.servers": site.bootstrap})
    plain.produce(source, b"from elsewhere")
    names = {"topic": "gone", "partition": "0", "offset": "0", "group": "g", "reason": "r"}
    headers: Any = [(f"headworks.dead-letter.{n}", v) for n, v in names.items()]
    plain.produce(source, b"of a topic that was deleted", headers=headers)
    assert plain.flush(60) == 0
    report = redrive(site)
    assert report.sent == {site.topic: 1}
    assert report.left == {
        "have no headers of Headworks": 1,
        "belong to gone, which does not exist": 1,
    }


def test_the_audit_counts_the_dead_and_the_copies(site: Site) -> None:
    with reading(site, "all", audit=True, state_dir=site.state) as consumer:
        with Producer(
            site.bootstrap, site.registry, application="test", state_dir=site.state
        ) as producer:
            producer.send_and_wait(site.visit("ada"), 60)
        take(consumer, 1)
        consumer.reject("no")
        redrive(site)
        take(consumer, 1)
        consumer.skip()
    with Consumer[dict[str, Any]](
        topics=[AUDIT_TOPIC],
        group=f"audit-{site.topic}",
        bootstrap=site.bootstrap,
        registry=site.registry,
    ) as audit:
        counts: dict[tuple[str, str], dict[str, int]] = {}
        group = f"all-{site.topic}"
        wanted = {
            ("producer", "test"): {"attempted": 1, "delivered": 1},
            ("producer", "headworks-redrive"): {"attempted": 1, "delivered": 1},
            (f"consumer:{group}", group): {"dead": 1, "skipped": 1},
        }
        while counts != wanted:  # a slow test sends some counts in several increments
            message = audit.poll(60)
            assert message is not None, counts
            event = message.event
            if event["topic"] == site.topic:
                counted = counts.setdefault((event["tier"], event["application"]), {})
                for name, number in event["counts"].items():
                    counted[name] = counted.get(name, 0) + number


def test_the_commands_list_show_and_send(
    site: Site,
    broker: Service,
    registry: Service,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))

    def run(verb: str, *arguments: str) -> Any:
        line = ("dead-letter", verb, site.topic, *arguments, "--format", "json")
        return command(*line, broker=broker, registry=registry)

    def said(verb: str, *arguments: str) -> Any:
        done = run(verb, *arguments)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    die(site, "ada", "bob")
    die(site, "cy", group="mail")  # it gives up the first message
    die(site, "di", group="mail")
    listed = {row["group"].partition("-")[0]: row for row in said("list")}
    assert [listed[one]["letters"] for one in ("billing", "mail")] == [2, 2]
    assert listed["mail"]["exception"] == "UnknownCustomer"
    place = listed["mail"]["last"]
    shown = said("show", place)
    assert shown["reason"].startswith("who is ")
    assert shown["event"]["user"] in shown["reason"]
    assert shown["headers"] == {"shop": "web"}
    chosen = ("--reason", "who is ada", "--group", f"billing-{site.topic}", "--yes")
    assert said("redrive", *chosen, "--dry-run")["sent"] == {site.topic: 1}
    assert said("redrive", *chosen)["sent"] == {site.topic: 1}
    assert said("redrive", *chosen)["sent"] == {}
    words = ("dead-letter", "redrive", site.topic, *chosen)
    again = command(*words, broker=broker, registry=registry)
    assert "there is none that this redrive, " in again.stderr
    assert "--name NAME starts another, which sends all of them again" in again.stderr
    assert said("redrive", "--at", place, "--yes")["sent"] == {site.topic: 1}
    alone = ("redrive", site.topic, "--at", place, "--to-group", "ship", "--yes")
    told = command("dead-letter", *alone, broker=broker, registry=registry).stderr
    assert f"1 dead letter sent to {site.topic}.redriven.ship" in told
    assert "members of ship read them that have the option redriven=True" in told
    missing = run("show", "0:999")
    assert missing.returncode == 2
    assert "holds no dead letter" in missing.stderr


LETTER = DeadLetter(
    partition=1,
    offset=7,
    topic="orders",
    origin_partition=0,
    origin_offset=3,
    group="billing",
    reason="UnknownCustomer: who is ada?",
    exception="UnknownCustomer",
    died_at=1,
    redrives=0,
    timestamp=1_000,
    key=b"ada",
    value=b"",
    headers=(),
)


@pytest.mark.parametrize(
    ("condition", "matches"),
    [
        ({}, True),
        ({"topic": "orders", "group": "billing", "exception": "UnknownCustomer"}, True),
        ({"reason": "who is ada", "key": b"ada", "since": 1_000, "until": 1_001}, True),
        ({"at": (1, 7)}, True),
        ({"at": (1, 8)}, False),
        ({"topic": "other"}, False),
        ({"group": "other"}, False),
        ({"exception": "Other"}, False),
        ({"reason": "who is bob"}, False),
        ({"key": b"bob"}, False),
        ({"since": 1_001}, False),
        ({"until": 1_000}, False),
    ],
)
def test_a_selection_includes_letters_that_meet_every_condition(
    condition: dict[str, Any], matches: bool
) -> None:
    assert LetterSelection(**condition).includes(LETTER) is matches


def test_names_of_retry_topics() -> None:
    assert redriven_topic("orders", "billing") == "orders.redriven.billing"
    assert retry_topic("orders", "billing", 60) == "orders.retry-60s.billing"
    assert all(map(is_retry_topic, ("orders.redriven.billing", "a.b.retry-5s.c")))
    assert not any(map(is_retry_topic, ("orders", "orders.retry", "redriven.b", "orders.redriven")))
    with pytest.raises(UsageError, match="no topic may be named so"):
        redriven_topic("orders", "my group")


def test_a_killed_redrive_loses_nothing_and_repeats_what_it_had_not_committed(
    site: Site, tmp_path: Path
) -> None:
    report = redrive_campaign.redrive_under_kills(site, tmp_path, kills=2, seed=5, letters=1_500)
    assert not report.wrong, str(report)
    assert report.copies == 1_500 + report.repeated
