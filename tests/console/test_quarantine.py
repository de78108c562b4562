"""The quarantine page: reasons, places, and commands, and no value of a sensitive field."""

from __future__ import annotations

from pathlib import Path

import pytest

from hadoop_loader._commit.commit_log import CommitLog
from hadoop_loader._commit.commit_record import Commit, TableState
from headworks._console.app.visibility import ALL_VISIBLE
from headworks._console.sources.loads import LoadReader
from headworks._console.sources.quarantine import read_quarantine, safe_reason
from headworks._console.views.loads import load_list
from headworks._console.views.paging import ListQuery
from headworks._console.views.quarantine import quarantine_page
from tests.console.quarantined import put

pytestmark = pytest.mark.unit

FOREIGN = "schema id 9999 is no version of views-value"
QUOTED = "'ada@example.org' is no number"


@pytest.fixture
def warehouse(tmp_path: Path) -> Path:
    log = CommitLog(tmp_path / "_headworks")
    state = TableState("views", "views-value", [[1, 1, 1, ""]], rows=10, files=2, quarantined=2)
    log.create(Commit(1, 1, "", {"views": {"0": 12}}, {"views": state}))
    put(tmp_path, 1, [("views", 3, FOREIGN, 9999), ("views", 4, QUOTED, 7)])
    put(tmp_path, 2, [("orders", 8, QUOTED, 5), ("views", 5, FOREIGN, 9999)])
    return tmp_path


def test_reasons_places_and_commands(warehouse: Path) -> None:
    found = read_quarantine(warehouse, lambda _: True)
    page = quarantine_page(
        found, ListQuery(), masked=lambda topic: topic == "views", requeue=lambda t: f"requeue {t}"
    )
    assert page.whole
    assert [(one.topic, one.reason, one.schema_id, one.messages) for one in page.reasons] == [
        ("views", FOREIGN, 9999, 2),
        ("orders", QUOTED, 5, 1),
        ("views", "the value does not decode", 7, 1),
    ]
    assert page.reasons[0].newest_load == 2
    assert page.reasons[0].requeue == "requeue views"
    assert [(row.topic, row.partition, row.offset) for row in page.part.rows] == [
        ("orders", 0, 8),
        ("views", 0, 5),
        ("views", 0, 4),
        ("views", 0, 3),
    ]
    some = quarantine_page(
        found, ListQuery("9999"), masked=lambda _: True, requeue=lambda topic: topic
    )
    assert [row.offset for row in some.part.rows] == [5, 3]


def test_topics_that_a_reader_may_not_see_are_left_out(warehouse: Path) -> None:
    found = read_quarantine(warehouse, lambda topic: topic == "orders")
    assert [row.topic for row in found.rows] == ["orders"]


def test_a_warehouse_before_its_first_load_has_no_quarantine(tmp_path: Path) -> None:
    assert read_quarantine(tmp_path, lambda _: True).rows == ()


@pytest.mark.parametrize("reason", [FOREIGN, "the datum ends too early"])
def test_a_reason_without_a_value_is_shown(reason: str) -> None:
    assert safe_reason(reason) == reason
    assert safe_reason(f"{reason}\n'secret'") == "the value does not decode"


def test_tables_show_how_far_they_are_complete_and_their_lag(warehouse: Path) -> None:
    marks = warehouse / "_headworks" / "complete.json"
    marks.write_text('{"views": [600000, -1]}', encoding="utf-8")
    loads = LoadReader(warehouse)()
    assert loads.by_topic["views"].complete_until_ms == 600_000
    assert (loads.by_topic["views"].files, loads.free_share is None) == (2, False)
    view = load_list(loads, {"views": 5, "elsewhere": 1}, ALL_VISIBLE, ListQuery())
    assert view.lags == {"views": 5}


def test_the_reader_of_loads_says_once_that_there_are_messages(
    tmp_path: Path, warehouse: Path
) -> None:
    told: list[str] = []
    empty = LoadReader(tmp_path / "none", lambda: told.append("none"))
    found = LoadReader(warehouse, lambda: told.append("some"))
    for _ in range(2):
        empty()
        found()
    assert told == ["some"]
