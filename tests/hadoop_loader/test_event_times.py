"""Messages are decoded in the order of their files: the files are as if they were not."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pytest

from hadoop_loader._decode import row_order
from hadoop_loader._decode.event_times import EventTimes
from hadoop_loader._decode.quarantine import QUARANTINE_TABLE
from hadoop_loader._fetch.messages import FetchedMessage, MessageColumns
from hadoop_loader._tasks.load_task import TopicLoader, TopicPlan, WriterSchema
from headworks._native import COMPILED
from headworks.schema import parse
from tests.hadoop_loader.memory import encoded
from tests.tools import needs

pytestmark = pytest.mark.unit

DAY_MS = 86_400_000


def view(*fields: dict[str, Any], time: str = "at", **more: Any) -> dict[str, Any]:
    inner = [
        {"name": "server", "type": ["null", "string"]},
        {"name": time, "type": {"type": "long", "logicalType": "timestamp-millis"}, **more},
    ]
    header = {"type": "record", "name": "Header", "fields": inner}
    named = [{"name": "n", "type": "int"}, {"name": "header", "type": header}, *fields]
    governed = {"headworks": {"topic": "views", "event_time": f"header.{time}"}}
    return {"type": "record", "name": "View", "fields": named, **governed}


OLD = view({"name": "text", "type": "string"})
NEW = view({"name": "added", "type": "long", "default": 7}, time="when", aliases=["at"])
# Its data have no event time: the default is one.
BEFORE = {"type": "record", "name": "View", "fields": [{"name": "n", "type": "int"}]}
TIMED = {
    "type": "record",
    "name": "View",
    "fields": [
        {"name": "n", "type": "int"},
        {
            "name": "at",
            "type": {"type": "long", "logicalType": "timestamp-millis"},
            "default": 86_400_000,
        },
    ],
    "headworks": {"topic": "views", "event_time": "at"},
}


class Rows:
    """Keeps what would be written."""

    def __init__(self) -> None:
        self.written: list[Any] = []

    def write(
        self, topic: str, table: str, rows: pa.Table, days: Sequence[tuple[str, int, int]]
    ) -> None:
        if table == QUARANTINE_TABLE:
            rows = rows.select([name for name in rows.column_names if name != "_written"])
        self.written.append((topic, table, rows.to_pylist(), list(days)))


def messages(seed: int) -> list[FetchedMessage]:
    chance = random.Random(seed)
    found = []
    for n in range(400):
        at = chance.choice([0, 5, 6, 20_000]) * DAY_MS + chance.randrange(DAY_MS)
        header = {"server": chance.choice([None, "a"]), "at": at, "when": at}
        number = chance.choice([1, 2])
        value = encoded(
            (OLD, NEW)[number - 1], {"n": n, "header": header, "text": "x", "added": n}, number
        )
        if n % 9 == 0:
            value = value[: chance.randrange(5, len(value))]
        found.append(FetchedMessage(n % 3, n, n, None, value))
    return found


def written(plan: TopicPlan, found: list[FetchedMessage], *, compiled: bool) -> list[Any]:
    rows = Rows()
    loader = TopicLoader(plan, 1, rows, compiled=compiled)
    for start in range(0, len(found), 150):
        loader.add(MessageColumns.of(found[start : start + 150]))
    loader.flush()
    return rows.written


@needs("extensions")
@pytest.mark.parametrize("ordered_from", [0, 100, 1000])
@pytest.mark.parametrize("seed", range(3))
def test_files_are_those_of_the_generated_decoder(
    seed: int, ordered_from: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(row_order, "ORDERED_FROM", ordered_from)
    writers = tuple(WriterSchema(i, i, json.dumps(s)) for i, s in enumerate((OLD, NEW), 1))
    plan = TopicPlan("views", "views", "views-value", writers[1], writers)
    found = messages(seed)
    (rows, bad) = written(plan, found, compiled=True)
    assert [rows, bad] == written(plan, found, compiled=False)
    assert len(rows[3]) == 4
    for _, _, count in rows[3]:
        assert count > 50
    assert len(bad[2]) > 20
    assert len(rows[2]) + len(bad[2]) == len(found)


@needs("extensions")
def test_times_are_read_where_the_writer_has_them() -> None:
    old, new = parse(json.dumps(OLD)), parse(json.dumps(NEW))
    times = EventTimes.of(old, new, ("header", "when"))
    assert times is not None
    value = encoded(OLD, {"n": 1, "header": {"server": "a", "at": 3}, "text": "x"}, 1)
    cut = value[:-1]  # the text is not there, and nobody looks
    given = MessageColumns.of(FetchedMessage(0, 0, 0, None, each) for each in (value, cut, b""))
    assert times.read(given).to_pylist() == [3000, 3000, 3000]


@needs("extensions")
def test_a_writer_without_an_event_time_has_the_default(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(row_order, "ORDERED_FROM", 0)
    before, timed = parse(json.dumps(BEFORE)), parse(json.dumps(TIMED))
    assert EventTimes.of(before, timed, ("at",)) is None
    writers = WriterSchema(1, 1, json.dumps(BEFORE)), WriterSchema(2, 2, json.dumps(TIMED))
    plan = TopicPlan("views", "views", "views-value", writers[1], writers)
    found = [FetchedMessage(0, n, n, None, encoded(BEFORE, {"n": n}, 1)) for n in range(5)]
    ((_, _, rows, days),) = written(plan, found, compiled=COMPILED)
    assert days == [("1970-01-02", 0, 5)]
    assert [row["n"] for row in rows] == list(range(5))
