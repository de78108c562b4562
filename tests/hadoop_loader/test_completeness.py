"""Tables are marked with how far they are complete, by what the audit's store says."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from pathlib import Path

import pytest
from sqlalchemy.exc import OperationalError

from hadoop_loader._commit.commit_record import Commit, TableState
from hadoop_loader._operations.completeness import (
    PROPERTY,
    CompletenessMarks,
    WindowSpan,
    audit_lookup,
)
from hadoop_loader._tables.columns import MARKS_TABLE
from headworks._audit import queries
from headworks._audit.store import AuditStore
from headworks.errors import UnreachableError
from tests.audit.test_store import WINDOW, add, increment
from tests.hadoop_loader.memory import MemoryCatalog

pytestmark = pytest.mark.unit

NOW = 1_000 * WINDOW


@pytest.fixture
def store(tmp_path: Path) -> Iterator[AuditStore]:
    opened = AuditStore(f"sqlite:///{tmp_path / 'audit.db'}")
    yield opened
    opened.close()


class Marking:
    """A warehouse's marks; `at` is the clock, and `asked` the spans of the last question."""

    def __init__(self, store: AuditStore, folder: Path) -> None:
        self.catalog = MemoryCatalog()
        self.at = NOW + 90_000
        self.asked: Mapping[str, WindowSpan] = {}
        self._store = store
        self._file = folder / "complete.json"

    def __call__(self, held: Collection[str] = ()) -> Mapping[str, int]:
        state = [[1, 1, 1, "x"]]
        tables = {t: TableState(t.lower(), f"{t}-value", state) for t in ("A", "foreign")}
        commit = Commit(1, 0, "", {}, {**tables, "headworks.audit": tables["A"]})
        marks = CompletenessMarks(self._file, self.catalog, self._judge, now=lambda: self.at / 1000)
        return marks(commit, held)

    def _judge(self, spans: Mapping[str, WindowSpan]) -> Mapping[str, int]:
        self.asked = spans
        found = {
            topic: queries.complete_until(self._store, topic, since=s.since, until=s.until)
            for topic, s in spans.items()
        }
        return {topic: one.until for topic, one in found.items() if one.counted}


def test_a_mark_stops_before_the_first_window_that_lacks_something(
    store: AuditStore, tmp_path: Path
) -> None:
    marking = Marking(store, tmp_path)
    for window in range(990, 1000):
        counts = {"attempted": 1000, "delivered": 1000}
        add(store, increment("A", "producer", window, counts))
        there = 998 if window == 995 else 999
        add(store, increment("A", "hadoop", window, {"loaded": there}))
    add(store, increment("foreign", "hadoop", 1, {"loaded": 5}))
    assert marking() == {"A": 995 * WINDOW}
    assert marking.asked == {"A": WindowSpan(None, NOW), "foreign": WindowSpan(None, NOW)}
    assert marking.catalog.properties == {"a": {PROPERTY: "1970-01-07T21:50:00Z"}}
    assert "'A', 'a', TIMESTAMP '1970-01-07T21:50:00Z'" in marking.catalog.views[MARKS_TABLE]

    add(store, increment("A", "hadoop", 995, {"loaded": 1}))
    assert marking() == {"A": NOW}
    assert marking.asked["A"] == WindowSpan(995 * WINDOW - 86_400_000, NOW)
    assert "TIMESTAMP '1970-01-07T22:40:00Z'" in marking.catalog.views[MARKS_TABLE]
    # Less than an hour further: the property stays, until it would go back.
    assert marking.catalog.properties == {"a": {PROPERTY: "1970-01-07T21:50:00Z"}}
    add(store, increment("A", "producer", 993, {"attempted": 9, "delivered": 9}))
    assert marking() == {"A": 993 * WINDOW}
    assert marking.catalog.properties == {"a": {PROPERTY: "1970-01-07T21:30:00Z"}}


def test_a_mark_moves_with_time_when_nothing_is_sent(store: AuditStore, tmp_path: Path) -> None:
    marking = Marking(store, tmp_path)
    add(store, increment("A", "producer", 10, {"attempted": 1, "delivered": 1}))
    add(store, increment("A", "hadoop", 10, {"loaded": 1}))
    assert marking() == {"A": NOW}
    marking.at += 7 * WINDOW
    assert marking() == {"A": NOW + 7 * WINDOW}
    assert marking.catalog.properties == {"a": {PROPERTY: "1970-01-07T23:50:00Z"}}


def test_a_store_that_goes_away_while_it_is_asked_is_said_to_be_away(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Quiet:
        def __init__(self, *_: object) -> None: ...
        def __enter__(self) -> Quiet:
            return self

        def __exit__(self, *_: object) -> None: ...
        def catch_up(self) -> None:
            raise OperationalError("SELECT 1", {}, OSError("gone"))

    monkeypatch.setattr("headworks._audit.reconciler.Reconciler", Quiet)
    judge = audit_lookup(f"sqlite:///{tmp_path / 'audit.db'}", "127.0.0.1:1", "http://127.0.0.1:1")
    with pytest.raises(UnreachableError, match="the audit's store has gone away"):
        judge({"A": WindowSpan(None, NOW)})


def test_a_mark_does_not_go_forward_while_partitions_are_left_out(
    store: AuditStore, tmp_path: Path
) -> None:
    marking = Marking(store, tmp_path)
    add(store, increment("A", "producer", 990, {"attempted": 1, "delivered": 1}))
    add(store, increment("A", "hadoop", 990, {"loaded": 1}))
    assert marking({"A"}) == {}
    assert marking({"foreign"}) == {"A": NOW}
    marking.at += WINDOW
    assert marking({"A"}) == {"A": NOW}
    add(store, increment("A", "producer", 995, {"attempted": 9, "delivered": 9}))
    assert marking({"A"}) == {"A": 995 * WINDOW}
    add(store, increment("A", "hadoop", 995, {"loaded": 9}))
    assert marking({"A"}) == {"A": 995 * WINDOW}
    assert marking() == {"A": NOW + WINDOW}
