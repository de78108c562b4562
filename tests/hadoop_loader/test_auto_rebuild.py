"""What slipped through the warehouse policy: the load rebuilds the table, if it can."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from hadoop_loader._commit.report import LoadReport
from hadoop_loader._operations.drop import Acknowledge
from hadoop_loader._operations.load import Load
from hadoop_loader._operations.rebuild import rebuild_each
from hadoop_loader._operations.verify import count_rows
from headworks.errors import UnreachableError, UsageError
from tests.hadoop_loader.memory import World, encoded
from tests.hadoop_loader.test_loading import DAY, V1, click

pytestmark = pytest.mark.unit

LONG: Any = {**V1, "fields": [V1["fields"][0], {"name": "n", "type": "long"}]}
DOUBLE: Any = {**V1, "fields": [V1["fields"][0], {"name": "n", "type": "double"}]}


class Killed(BaseException):
    """A loader's end, at a step."""


def begun(world: World, then: Any = DOUBLE) -> None:
    """Three rows of two days in a table, and a fourth message in a schema it cannot follow."""
    world.register("clicks", LONG)
    for n in range(3):
        click(world, n, n * DAY // 2, schema=LONG)
    assert Load(world.context()).run().rows == 3
    click(world, 3, schema=then, schema_id=world.register("clicks", then))


def values(world: World) -> list[float]:
    """Return the values of the table over files that the view reads."""
    table = world.catalog.views["clicks"].rpartition(" FROM ")[2]
    return sorted(row["n"] for row in world.rows(table))


def test_a_load_rebuilds_what_cannot_follow_and_then_loads_it(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    begun(world)
    report = Load(world.context()).run()
    assert (report.rebuilt, report.rows, report.number) == (("clicks",), 1, 3)
    assert report.left_out is None
    assert values(world) == [0.0, 1.0, 2.0, 3.0]
    assert "the table of topic clicks was rebuilt by commit 2" in caplog.text
    assert count_rows(world.root)[0].in_files == 4
    again = Load(world.context()).run()
    assert (again.committed, again.rebuilt) == (False, ())


def test_never_leaves_the_table_as_it_is(world: World) -> None:
    begun(world)
    report = Load(world.context(rebuild="never")).run()
    assert report.committed is False
    assert "headworks load rebuild clicks" in report.refused[0].reason
    with pytest.raises(UsageError, match="use auto, never"):
        world.context(rebuild="always")


def test_what_avro_does_not_resolve_stays_refused_until_it_is_acknowledged(world: World) -> None:
    begun(world, {**V1, "fields": [V1["fields"][0], {"name": "n", "type": "boolean"}]})
    world.log.append("other", encoded(V1, {"at": 0, "n": 9}, world.register("other", V1)))
    report = Load(world.context()).run()
    assert [one.topic for one in report.topics] == ["other"]
    assert report.rebuilt == ()
    assert "fix: give the new events a new topic" in report.refused[0].reason
    Acknowledge(world.context()).run("clicks")
    assert Load(world.context()).run().left_out is None


def test_a_damaged_file_leaves_one_table_refused(world: World) -> None:
    begun(world)
    world.log.append("other", encoded(V1, {"at": 0, "n": 9}, world.register("other", V1)))
    file = next(Path(str(world.root)).glob("clicks/**/*.parquet"))
    file.write_bytes(b"PAR1" + bytes(40))
    report = Load(world.context()).run()
    assert [one.topic for one in report.topics] == ["other"]
    (refused,) = report.refused
    assert file.name in refused.reason


def test_a_registry_that_ends_meanwhile_ends_the_load(world: World) -> None:
    begun(world)
    calls = []

    def versions(topics: Any) -> Any:
        calls.append(topics)
        if len(calls) > 1:
            raise UnreachableError("the registry is gone")
        return {t: tuple(world.subjects.get(t, ())) for t in topics}

    with pytest.raises(UnreachableError, match="the registry is gone"):
        Load(world.context(versions=versions)).run()
    assert Load(world.context()).run().rebuilt == ("clicks",)


def test_killed_at_any_step_the_next_load_finishes(world: World) -> None:
    begun(world)
    for k in range(100):
        steps = [0]

        def step(_: str, at: int = k, steps: list[int] = steps) -> None:
            steps[0] += 1
            if steps[0] > at:
                raise Killed

        try:
            done: LoadReport | None = Load(world.context(on_step=step)).run()
        except Killed:
            continue
        break
    assert done is not None
    assert k > 8
    assert Load(world.context()).run().committed is False
    assert values(world) == [0.0, 1.0, 2.0, 3.0]
    assert count_rows(world.root)[0].in_files == 4


def test_no_topic_waits_for_the_rebuild_of_another(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun(world)
    world.log.append("other", encoded(V1, {"at": 0, "n": 9}, world.register("other", V1)))
    seen: list[int] = []

    def rebuild(*arguments: Any) -> dict[str, str]:
        seen.append(len(world.rows("other")))
        return rebuild_each(*arguments)

    monkeypatch.setattr("hadoop_loader._operations.load.rebuild_each", rebuild)
    report = Load(world.context()).run()
    assert seen == [1]
    assert (report.rebuilt, report.rows, report.left_out) == (("clicks",), 2, None)
    assert sorted(one.topic for one in report.topics) == ["clicks", "other"]


def test_what_the_metastore_cannot_store_is_not_rebuilt(world: World) -> None:
    """Else the commit would stand, and every load would fail to define its table."""
    long_name = {"name": "x" * 800, "type": "int", "default": 0}
    begun(world, {**DOUBLE, "fields": [*DOUBLE["fields"], long_name]})
    report = Load(world.context()).run()
    assert (report.rebuilt, report.committed) == ((), False)
    assert "(column xxx" in report.refused[0].reason
    assert values(world) == [0, 1, 2]
