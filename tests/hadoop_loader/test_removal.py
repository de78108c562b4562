"""Rows that leave: one person's by erasure, old days' by retention, and the books stay right."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from hadoop_loader._commit.policy import Policy
from hadoop_loader._decode.quarantine import QUARANTINE_TABLE
from hadoop_loader._fetch.messages import FetchedMessage
from hadoop_loader._operations.compact import Compaction
from hadoop_loader._operations.erase import Erase, EraseCondition
from hadoop_loader._operations.load import Load
from hadoop_loader._operations.retention import TableRetention
from hadoop_loader._operations.verify import count_rows
from hadoop_loader._storage.failpoints import STEPS
from headworks.errors import UsageError
from tests.hadoop_loader.memory import World, encoded
from tests.hadoop_loader.test_loading import DAY, V1, Killed, click, killer, numbers

pytestmark = pytest.mark.unit

USER: Any = {
    "type": "record",
    "name": "Visit",
    "fields": [
        {
            "name": "user",
            "type": {
                "type": "record",
                "name": "User",
                "fields": [{"name": "name", "type": "string"}, {"name": "id", "type": "long"}],
            },
        }
    ],
}
RENAMED: Any = {
    **V1,
    "fields": [V1["fields"][0], {"name": "number", "type": "int", "aliases": ["n"]}],
}


def erase(world: World, where: str, **changes: Any) -> Any:
    return Erase(world.context(**changes)).run(EraseCondition.parse(where))


def verified(world: World) -> bool:
    return all(one.in_files == one.in_commits for one in count_rows(world.root))


def test_one_value_leaves_every_table_and_quarantine_by_any_name(world: World) -> None:
    world.register("clicks", V1)
    world.register("other", V1)
    world.register("visits", USER)
    for n in range(12):
        click(world, n % 4, at=n % 3 * DAY)
        world.log.append("other", encoded(V1, {"at": 0, "n": n % 4}, 2))
        world.log.append("visits", encoded(USER, {"user": {"name": "Ann", "id": n}}, 3))
    bad = world.log.topics["other"][0]
    bad += [FetchedMessage(0, len(bad) + i, 0, key, b"?") for i, key in enumerate((b"2", b"3"))]
    Load(world.context()).run()
    world.register("clicks", RENAMED)
    world.log.append("clicks", encoded(RENAMED, {"at": 0, "number": 2}, 4))
    Load(world.context()).run()
    report = erase(world, " n = 2")
    assert report.rows == {"clicks": 4, "other": 3}
    assert report.quarantined == {"other": 1}
    assert report.searched == ("clicks", "other")
    assert numbers(world, "other") == sorted([0, 1, 3] * 3)
    left: list[int] = [row.get("number", row.get("n")) or 0 for row in world.rows("clicks")]
    assert sorted(left) == sorted([0, 1, 3] * 3)
    assert [row["key"] for row in world.rows(QUARANTINE_TABLE)] == [b"3"]
    assert verified(world)
    last = world.context().log.latest()
    assert last is not None
    assert (last.tables["other"].rows, last.tables["other"].quarantined) == (9, 1)
    assert "2" not in json.dumps(last.topics["other"].windows)
    assert erase(world, "n = 2").number == 0
    assert erase(world, "user.name = 'Ann'").rows == {"visits": 12}
    assert verified(world)


@pytest.mark.parametrize("step", STEPS)
def test_an_erasure_that_is_killed_is_done_or_not(world: World, step: str) -> None:
    world.register("clicks", V1)
    for n in range(8):
        click(world, n % 4, at=n % 2 * DAY)
    Load(world.context()).run()
    try:
        erase(world, "n = 2", on_step=killer(step))
    except Killed:
        Load(world.context()).run()
        erase(world, "n = 2")
    assert numbers(world) == [0, 0, 1, 1, 3, 3]
    assert verified(world)


@pytest.mark.parametrize("text", ["n", "n > 3", "n = 1 OR 1 = 1", "n = 'a", "n = 1.5", "= 3"])
def test_a_condition_is_one_field_and_one_value(text: str) -> None:
    with pytest.raises(UsageError, match="is not a condition"):
        EraseCondition.parse(text)


def test_quotes_are_doubled_in_a_text() -> None:
    assert EraseCondition.parse("a.b = 'it''s'") == EraseCondition(("a", "b"), "it's")


def test_a_field_that_no_table_has_is_refused(world: World) -> None:
    world.register("clicks", V1)
    click(world, 0)
    Load(world.context()).run()
    for where in ("user_id = 42", "at = 0"):
        with pytest.raises(UsageError, match="no table has a field"):
            erase(world, where)


def kept(world: World, days: int, **changes: Any) -> Any:
    context = world.context(now=lambda: 10.5 * 86_400, **changes)
    policy = Policy(keep_days=days, allow=context.policy.allow)
    return TableRetention(replace(context, policy=policy)).run_after()


def test_days_that_are_too_old_go_with_their_files(world: World) -> None:
    world.register("clicks", V1)
    for n in range(10):
        click(world, n, at=n * DAY)
    world.log.append("clicks", b"junk", timestamp=0)
    Load(world.context()).run()
    click(world, 3, at=3 * DAY)
    Load(world.context()).run()
    assert Compaction(world.context(), min_small_files=2).run().partitions == 1
    report = kept(world, 5)
    assert (report.partitions, report.rows) == (5, 6)
    assert numbers(world) == list(range(5, 10))
    assert world.rows(QUARANTINE_TABLE) == []
    assert verified(world)
    assert not (world.root / "clicks/datepartition=1970-01-01").exists()
    assert "1970-01-01" not in world.catalog.days["clicks"]
    assert kept(world, 5).number == 0
    click(world, 99, at=DAY)
    Load(world.context()).run()
    click(world, 98, at=3 * DAY)  # a day that was rewritten before it went
    Load(world.context()).run()
    assert numbers(world) == [*range(5, 10), 98, 99]
    assert kept(world, 5, allow="other").number == 0
    assert kept(world, 5).rows == 2
    assert verified(world)


@pytest.mark.parametrize("step", STEPS)
def test_retention_that_is_killed_is_finished(world: World, step: str) -> None:
    world.register("clicks", V1)
    for n in range(10):
        click(world, n, at=n * DAY)
    Load(world.context()).run()
    try:
        kept(world, 5, on_step=killer(step))
    except Killed:
        Load(world.context()).run()
    kept(world, 5)
    assert numbers(world) == list(range(5, 10))
    assert verified(world)
