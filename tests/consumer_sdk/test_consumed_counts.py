"""The audit's counts of consumed messages, in every form: each message once, in its own counts.

The client's messages are real, and so is the counter file. Nothing is published.
"""

from __future__ import annotations

import random
import shutil
from collections import Counter, deque
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Message as Raw

from consumer_sdk import _audit_tier
from consumer_sdk._audit_tier import AuditTier
from headworks._audit_counting import AUDIT_TOPIC, WINDOW_MS, window_counts
from headworks._audit_counting.counters import CounterFile
from headworks._audit_counting.outcomes import CONSUMED, DEAD, OUTCOMES
from headworks._audit_counting.schema_use import ids_of
from headworks._audit_counting.tally import PythonTally
from headworks._native import messages
from headworks._wire import prefix

pytestmark = pytest.mark.unit

Place = tuple[str, int, int | None]  # topic, window, and schema id
_ROUNDS = 20
_MESSAGES = 400


class _Publisher:
    """A counter file that a test publishes."""

    def __init__(self, _client: Any, _ids: Any, folder: Path, **_: Any) -> None:
        self.counters = CounterFile(folder)

    def close(self) -> None:
        self.counters.close(remove=True)


@pytest.fixture(params=["as installed", "python", "without a global lock"])
def tier(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[AuditTier]:
    monkeypatch.setattr(_audit_tier, "AuditPublisher", _Publisher)
    if request.param == "python":
        monkeypatch.setattr(window_counts, "Tally", PythonTally)
    if request.param == "without a global lock":
        monkeypatch.setattr(_audit_tier, "HAS_GIL", False)
        monkeypatch.setattr(window_counts, "HAS_GIL", False)
    made = AuditTier({}, "http://127.0.0.1:9", "billing", "test", tmp_path, every=3600)
    yield made
    made.close()


def _compiled(tier: AuditTier, raws: list[Raw]) -> None:
    fetched = deque(raws)
    step = messages.CompiledStep(Raw, fetched, deque(), fetched.appendleft)
    step.connect(lambda raw: raw, {CONSUMED: 0}, CONSUMED, tier.processed)
    assert list(step) == raws


def _in_python(tier: AuditTier, raws: list[Raw]) -> None:
    for raw in raws:
        tier.processed(raw, CONSUMED)


_FORMS = [_in_python] if messages is None else [_in_python, _compiled]


def _drawn(draw: random.Random, count: int) -> list[Raw]:
    """Return messages of few topics, schemas, and windows, in runs, some of them unusual."""
    raws: list[Raw] = []
    while len(raws) < count:
        topic = draw.choice(("views", "clicks", AUDIT_TOPIC))
        head = draw.choice((prefix(7), prefix(7), prefix(8), b"", b"\x01\x00\x00\x00\x07"))
        at = draw.randrange(3) * WINDOW_MS + draw.choice((0, 1, WINDOW_MS - 1))
        for _ in range(draw.choice((1, 2, 20))):
            value = draw.choice((head, head + b"more", head + b"more", None))
            raws.append(
                Raw(topic=topic, value=value, partition=0, offset=len(raws), timestamp=(1, at))
            )
    return raws


def _published(counters: CounterFile) -> tuple[Counter[Place], Counter[Place]]:
    """Publish all counts; return those of messages, and of their bytes."""
    found, sizes = Counter[Place](), Counter[Place]()
    for one in counters.increments():
        place = one.topic, one.window_start, None if one.ids is None else one.ids.written
        found[place] += one.counts.get(OUTCOMES[CONSUMED], 0)
        sizes[place] += one.bytes
        counters.published(one)
    return found, sizes


@pytest.mark.parametrize("consume", _FORMS)
def test_each_message_counts_once_in_its_own_window_and_schema(
    tier: AuditTier, consume: Callable[[AuditTier, list[Raw]], None]
) -> None:
    wanted, sizes, found = Counter[Place](), Counter[Place](), (Counter[Place](), Counter[Place]())
    for seed in range(_ROUNDS):
        raws = _drawn(random.Random(seed), _MESSAGES)
        consume(tier, raws)
        for raw in raws:
            value, topic = raw.value(), raw.topic()
            if topic != AUDIT_TOPIC:
                window = raw.timestamp()[1] // WINDOW_MS * WINDOW_MS
                place = str(topic), window, ids_of(value).written
                wanted[place] += 1
                sizes[place] += len(value or b"")
        if seed % 3 == 0:  # a slot that is published is free, and taken again
            for kept, more in zip(found, _published(tier._publisher.counters), strict=True):
                kept.update(more)
    for kept, more in zip(found, _published(tier._publisher.counters), strict=True):
        kept.update(more)
    assert found == (wanted, +sizes)


@pytest.mark.parametrize("consume", _FORMS)
def test_a_process_that_is_killed_leaves_the_number_of_consumed_messages(
    tier: AuditTier, consume: Callable[[AuditTier, list[Raw]], None], tmp_path: Path
) -> None:
    raws = [_raw(n) for n in range(100)]
    consume(tier, raws)
    left = tmp_path / "left" / "copy.counts"
    left.parent.mkdir()
    shutil.copy(tier._publisher.counters.path, left)  # as a kill leaves it: nothing was flushed
    counters = CounterFile(left.parent, path=left)
    (one,) = counters.increments(owner_died=True)
    assert one.counts == {OUTCOMES[CONSUMED]: 100}
    counters.close()


def _raw(offset: int, at: int = 5) -> Raw:
    return Raw(topic="views", value=prefix(7), partition=0, offset=offset, timestamp=(1, at))


def test_another_outcome_is_not_counted_as_consumed(tier: AuditTier) -> None:
    for outcome in (CONSUMED, DEAD, CONSUMED, DEAD, DEAD):
        tier.processed(_raw(0), outcome)
    (one,) = tier._publisher.counters.increments()
    assert one.counts == {OUTCOMES[CONSUMED]: 2, OUTCOMES[DEAD]: 3}


def test_damaged_messages_count_in_the_window_of_the_last_one(tier: AuditTier) -> None:
    for at in (5, 5, WINDOW_MS + 5, WINDOW_MS + 5, 5, 5):
        tier.processed(_raw(0, at), CONSUMED)
    tier.damaged("views", 3)
    skipped = [one for one in tier._publisher.counters.increments() if "skipped" in one.counts]
    assert [(one.window_start, one.counts["skipped"]) for one in skipped] == [(0, 3)]
