"""Kill a redrive of many dead letters at random moments, and compare the topic with the letters.

A producer sends events, and a group gives up every one. `headworks dead-letter redrive` then runs,
is killed by SIGKILL, and runs again, until it ends by itself.

At the end:

- every letter is in the topic again;
- a letter is there once more only for each kill at which its offset was not committed;
- the group, which reads everything, has counted each message of the topic, and so have the
  producers: none is missing in the audit, and none is too many.

Rules: every choice comes from the seed. The commits are read while nothing runs.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

import confluent_kafka
from confluent_kafka import TopicPartition

from consumer_sdk import Consumer
from consumer_sdk._dead_letters.redrive import RedriveOptions
from consumer_sdk._dead_letters.selection import LetterSelection
from headworks._audit_counting import AUDIT_TOPIC
from headworks._server import child_process
from producer_sdk import Producer, WhenFull
from tests.producer_sdk.events import Site, new_site
from tests.soak.process import PATIENCE, Child

_GROUP = "billing"
_MEMBERS = 3  # of the group
_LONGEST_LIFE = 1.0  # seconds, of a redrive that is killed


@dataclass(frozen=True, slots=True)
class Report:
    """The observations of a campaign; `wrong` must be empty."""

    letters: int
    kills: int
    copies: int
    repeated: int
    seconds: float
    wrong: tuple[str, ...]

    def __str__(self) -> str:
        first = f"{self.letters} letters redriven under {self.kills} kills: {self.copies} copies,"
        return "\n".join([f"{first} {self.repeated} repeated, {self.seconds:.0f} s", *self.wrong])


def campaign(folder: Path, kills: int, seed: int, letters: int = 100_000) -> Report:
    """Kill a redrive of `letters` letters `kills` times, on servers of its own."""
    store = f"sqlite:///{folder}/registry.db"
    data = ["--data-dir", str(folder / "broker")]
    with (
        child_process.start(["broker", "start", "--listen", "127.0.0.1:0", *data]) as broker,
        child_process.start(
            ["registry", "start", "--listen", "127.0.0.1:0", "--store", store]
        ) as registry,
    ):
        site = new_site(folder, broker.address, registry.url)
        return redrive_under_kills(site, folder, kills, seed, letters)


def redrive_under_kills(site: Site, folder: Path, kills: int, seed: int, letters: int) -> Report:
    """Run the campaign on running servers."""
    began, random = time.monotonic(), Random(seed)
    wrong: list[str] = []
    _send(site, letters)
    wrong += _handle(site, letters, reject=True)
    source = f"{site.topic}.dead-letter"
    group = RedriveOptions(source, LetterSelection(topic=site.topic)).group
    command = ["cli", "dead-letter", "redrive", site.topic, "--yes"]
    servers = ["--bootstrap", site.bootstrap, "--registry", site.registry]
    state = folder / "redrive-state"
    committed: list[dict[int, int]] = []
    redrive = Child([*_with_state(state), *command, *servers], folder / "redrive.log")
    commits = Commits(site, group, source)
    for _ in range(kills):
        _wait_for_progress(redrive, commits, random)
        if redrive.process.poll() is not None:
            break
        redrive.kill()
        committed.append(commits.read())
        redrive.restart()
    commits.close()
    code = redrive.process.wait(PATIENCE)
    if code:
        wrong.append(f"the redrive ended with {code}: {redrive.log}")
    dead = _letters(site, source)
    copies = Counter(_origins(site))
    wrong += _judge(dead, copies, committed)
    wrong += _handle(site, sum(copies.values()), reject=False)
    wrong += _judge_audit(site, letters + sum(copies.values()), letters)
    repeated = sum(copies.values()) - len(copies)
    seconds = time.monotonic() - began
    return Report(
        letters, len(committed), sum(copies.values()), repeated, seconds, tuple(wrong[:20])
    )


class Commits:
    """Reads the next offset of a redrive, by partition."""

    def __init__(self, site: Site, group: str, source: str) -> None:
        self._consumer = confluent_kafka.Consumer(
            {"bootstrap.servers": site.bootstrap, "group.id": group}
        )
        found = self._consumer.list_topics(source, timeout=60).topics[source].partitions
        self._places = [TopicPartition(source, number) for number in found]

    def read(self) -> dict[int, int]:
        found = self._consumer.committed(self._places, timeout=60)
        return {p.partition: max(0, p.offset) for p in found}

    def close(self) -> None:
        self._consumer.close()


def _with_state(folder: Path) -> list[str]:
    """Return the words before a command that keep its state in a folder."""
    return ["tests.soak.with_state", str(folder)]


def _send(site: Site, count: int) -> None:
    with Producer(
        site.bootstrap,
        site.registry,
        application="shop",
        state_dir=site.state,
        when_full=WhenFull.BLOCK,
        block_ms=60_000,
    ) as producer:
        for number in range(count):
            assert producer.send(site.visit(f"user {number}"))
        assert producer.flush(PATIENCE) == 0


def _handle(site: Site, count: int, *, reject: bool) -> list[str]:
    """Give up, or handle, so many messages as a group that counts; return what is wrong."""
    lock, left = threading.Lock(), [count, time.monotonic()]

    def work() -> None:
        with Consumer(
            [site.one.Visit],
            group=_GROUP,
            bootstrap=site.bootstrap,
            registry=site.registry,
            audit=True,
            state_dir=site.state / "billing",
        ) as consumer:
            while left[0] > 0 and time.monotonic() - left[1] < PATIENCE:
                message = consumer.poll(1.0)
                if message is not None:
                    if reject:
                        consumer.reject("nobody knows this customer")
                    with lock:
                        left[:] = left[0] - 1, time.monotonic()

    members = [threading.Thread(target=work) for _ in range(_MEMBERS)]
    for member in members:
        member.start()
    for member in members:
        member.join()
    return [f"{left[0]} messages did not come to the group"] if left[0] > 0 else []


def _wait_for_progress(redrive: Child, commits: Commits, random: Random) -> None:
    """Let a redrive live until it has committed once more, and a random moment longer."""
    before, end = commits.read(), time.monotonic() + PATIENCE
    if random.random() < 0.7:  # else it dies at any moment, also before it began
        while redrive.process.poll() is None and time.monotonic() < end:
            if commits.read() != before:
                time.sleep(random.random() * 0.02)
                return
    time.sleep(random.random() * _LONGEST_LIFE)


def _read(site: Site, topic: str) -> Iterator[confluent_kafka.Message]:
    """Yield all messages of a topic."""
    consumer = confluent_kafka.Consumer({"bootstrap.servers": site.bootstrap, "group.id": "judge"})
    try:
        partitions = consumer.list_topics(topic, timeout=60).topics[topic].partitions
        places = [TopicPartition(topic, number) for number in partitions]
        left = {p.partition: consumer.get_watermark_offsets(p, timeout=60)[1] for p in places}
        left = {number: end for number, end in left.items() if end}
        consumer.assign([TopicPartition(topic, number, 0) for number in left])
        while left:
            for message in consumer.consume(1000, 1.0):
                assert message.error() is None, message.error()
                yield message
                if (message.offset() or 0) + 1 == left.get(message.partition() or 0):
                    del left[message.partition() or 0]
    finally:
        consumer.close()


def _headers(message: confluent_kafka.Message) -> dict[str, bytes]:
    headers: Any = message.headers() or []
    return dict(headers)


def _letters(site: Site, source: str) -> dict[str, tuple[int, int]]:
    """Return the place of each letter, by the origin that its copy names."""
    found = {}
    for message in _read(site, source):
        headers = _headers(message)
        names = (b"topic", b"partition", b"offset")
        origin = b"/".join(headers[f"headworks.dead-letter.{n.decode()}"] for n in names).decode()
        found[origin] = message.partition() or 0, message.offset() or 0
    return found


def _origins(site: Site) -> Iterator[str]:
    """Yield the origin of each redriven message."""
    for message in _read(site, site.topic):
        origin = _headers(message).get("headworks.origin")
        if origin is not None:
            yield origin.decode()


def _judge(
    dead: dict[str, tuple[int, int]], copies: Counter[str], committed: list[dict[int, int]]
) -> list[str]:
    """Return what is wrong with the copies, given what was committed at each kill."""
    wrong = [f"{origin} was not redriven" for origin in dead.keys() - copies.keys()]
    wrong += [f"{origin} was no letter" for origin in copies.keys() - dead.keys()]
    for origin, (partition, offset) in dead.items():
        most = 1 + sum(at[partition] <= offset for at in committed)
        if copies[origin] > most:
            wrong.append(f"{origin} is there {copies[origin]} times, and may be {most} times")
    return wrong


def _judge_audit(site: Site, messages: int, letters: int) -> list[str]:
    """Return how the audit differs from the topic, which holds `messages`."""
    counts: Counter[str] = Counter()
    seen: set[str] = set()
    with Consumer[dict[str, Any]](
        topics=[AUDIT_TOPIC],
        group="judge",
        bootstrap=site.bootstrap,
        registry=site.registry,
        commit_every=None,
    ) as audit:
        while (message := audit.poll(5.0)) is not None:
            event = message.event
            if event["topic"] == site.topic and event["id"] not in seen:
                seen.add(event["id"])
                counts.update(event["counts"])
    wrong = []
    arrived = counts["consumed"] + counts["dead"]
    if arrived != messages or counts["dead"] != letters:
        wrong.append(f"the group counts {arrived} of {messages} messages: {dict(counts)}")
    if counts["attempted"] != counts["delivered"] + counts["unresolved"]:
        wrong.append(f"the producers' counts do not add up: {dict(counts)}")
    if not counts["delivered"] <= messages <= counts["attempted"]:
        wrong.append(f"the producers do not account for {messages} messages: {dict(counts)}")
    return wrong
