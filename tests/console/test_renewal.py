"""What an open page costs: its renewals for an hour, counted in bytes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

import pytest
from starlette.testclient import TestClient

from headworks._console.app.application import create_app
from headworks._console.sources import Endpoints, Poller, Sources
from headworks._console.sources.groups import GroupsSnapshot
from headworks._console.sources.shown_message import MessageSlice, ShownMessage
from headworks._console.sources.subjects import SubjectsSnapshot
from headworks._console.sources.topics import TopicRow, TopicsSnapshot

pytestmark = pytest.mark.unit

POLL_SECONDS = 5
HOUR_SECONDS = 3600
TWO_MEGABYTES = 2_000_000


class Still:
    """A reader of a topic of one partition; `rows` messages are in it."""

    def __init__(self) -> None:
        self.rows = 25

    @contextmanager
    def connected(self) -> Iterator[Still]:
        yield self

    def bounds(self, _topic: str, _partitions: int) -> Mapping[int, tuple[int, int]]:
        return {0: (0, self.rows)}

    def read(self, *_arguments: object, **_options: object) -> MessageSlice:
        rows = tuple(
            ShownMessage(0, n, 1_700_000_000_000 + n, f"k{n}", (), 900, 1, 1, _event(n), None)
            for n in range(self.rows - 25, self.rows)
        )
        return MessageSlice(rows, 25, {0: self.rows}, complete=True)


def _event(number: int) -> Any:
    return {f"field_{one}": f"{number * 7919 + one * 104729:x}" * 4 for one in range(25)}


class Watched:
    """A console whose sources are read by hand, at the times of a clock of its own."""

    def __init__(self, folder: Path) -> None:
        self.now = 0.0
        self.reader = Still()
        sources = Sources(
            Endpoints("127.0.0.1:1", "http://127.0.0.1:1", folder, folder, f"sqlite:///{folder}/a")
        )
        row = TopicRow("clicks", 1, 25, 25, 0.0, (0.0,) * 30)
        sources.topics = self._poller("broker", TopicsSnapshot({"clicks": row}))
        sources.subjects = self._poller("registry", SubjectsSnapshot({}))
        sources.groups = self._poller("groups", GroupsSnapshot({}, {}))
        sources.messages = cast("Any", self.reader)
        every: list[Poller[Any]] = [sources.topics, sources.subjects, sources.groups]
        self._pollers = every
        self.client = TestClient(create_app(sources), base_url="http://127.0.0.1")
        self.tick(0)

    def _poller(self, name: str, value: Any) -> Poller[Any]:
        return Poller(name, lambda: value, interval=5.0, clock=lambda: self.now)

    def tick(self, seconds: float) -> None:
        self.now += seconds
        for number, one in enumerate(self._pollers):
            if int(self.now / POLL_SECONDS) % (number + 1) == 0:  # the ages differ
                one.refresh()

    def renew(self, path: str, known: str | None) -> tuple[int, str | None, str, int]:
        """The status, the tag, the text, and the bytes on the wire of one renewal."""
        headers = {"hx-request": "true", **({"if-none-match": known} if known else {})}
        with self.client.stream("GET", path, headers=headers) as found:
            raw = b"".join(found.iter_raw())
            head = sum(len(name) + len(value) + 4 for name, value in found.headers.raw)
        again = self.client.get(path, headers=headers).text if raw else ""
        return found.status_code, found.headers.get("etag"), again, len(raw) + head


@pytest.fixture
def watched(tmp_path: Path) -> Watched:
    return Watched(tmp_path)


PATH = "/topics/clicks/messages"


@pytest.mark.seconds
def test_an_open_tab_of_messages_costs_less_than_two_megabytes_an_hour(watched: Watched) -> None:
    whole = len(watched.client.get(PATH, headers={"accept-encoding": "identity"}).content)
    size, tag, statuses = 0, None, []
    for _ in range(HOUR_SECONDS // POLL_SECONDS):
        watched.tick(POLL_SECONDS)
        status, tag, _, weight = watched.renew(PATH, tag)
        statuses.append(status)
        size += weight
    assert whole * len(statuses) > 10 * TWO_MEGABYTES  # as it would be without
    assert statuses == [200] + [304] * (len(statuses) - 1)
    assert size < TWO_MEGABYTES, size


def test_a_new_message_is_sent_in_the_live_part_alone_and_small(watched: Watched) -> None:
    _, tag, first, _ = watched.renew(PATH, None)
    assert first.strip().startswith('<div id="live">')
    assert "<form" not in first
    watched.reader.rows += 1
    status, other, text, weight = watched.renew(PATH, tag)
    assert (status, other != tag) == (200, True)
    assert "0:25" in text
    assert weight < len(text) / 3  # gzip


def test_an_unchanged_page_tells_the_new_ages_of_its_sources(watched: Watched) -> None:
    _, tag, _, _ = watched.renew(PATH, None)
    watched.now += 7
    headers = {"hx-request": "true", "if-none-match": str(tag)}
    found = watched.client.get(PATH, headers=headers)
    assert found.status_code == 304
    assert found.headers["x-source-ages"] == "broker 7 s ago; registry 7 s ago; groups 7 s ago"


def test_a_source_that_gets_old_changes_the_page(watched: Watched) -> None:
    _, tag, _, _ = watched.renew(PATH, None)
    watched.now += 100
    status, _, text, _ = watched.renew(PATH, tag)
    assert status == 200
    assert 'class="old"' in text


def test_who_does_not_renew_gets_the_whole_page(watched: Watched) -> None:
    found = watched.client.get(PATH)
    assert "<!doctype html>" in found.text
    assert "etag" not in found.headers


def test_browsers_are_told_to_stay_with_tls(watched: Watched) -> None:
    plain = watched.client.get(PATH)
    assert "strict-transport-security" not in plain.headers
    told = watched.client.get(f"https://127.0.0.1{PATH}").headers["strict-transport-security"]
    assert told.startswith("max-age=")
