"""Tables that are dropped, and work that is given up: loudly, and for one topic alone."""

from __future__ import annotations

import pytest

from hadoop_loader._commit.commit_record import Commit
from hadoop_loader._operations import refusals
from hadoop_loader._operations.drop import Acknowledge, Drop
from hadoop_loader._operations.load import Load
from hadoop_loader._operations.refusals import (
    check_acknowledge,
    check_cluster_id,
    check_drop,
    check_table,
)
from hadoop_loader._operations.status import warehouse_status
from hadoop_loader._operations.verify import count_rows
from hadoop_loader._storage.failpoints import STEPS
from headworks.errors import UsageError
from tests.hadoop_loader.memory import World, encoded
from tests.hadoop_loader.test_loading import V1, V2, Killed, click, killer, numbers

pytestmark = pytest.mark.unit


@pytest.fixture(autouse=True)
def loaded(world: World) -> World:
    world.register("clicks", V1)
    world.register("other", V1)
    for n in range(6):
        click(world, n)
        world.log.append("other", encoded(V1, {"at": 0, "n": n}, 2))
    Load(world.context()).run()
    return world


def last_of(world: World) -> Commit:
    last = world.context().log.latest()
    assert last is not None
    return last


def test_a_table_is_dropped_once_its_topic_is_gone(world: World) -> None:
    with pytest.raises(UsageError, match="clicks is still on the broker"):
        Drop(world.context()).run("clicks")
    del world.log.topics["clicks"]
    report = Drop(world.context()).run("clicks")
    assert (report.table, report.rows) == ("clicks", 6)
    assert not (world.root / "clicks").exists()
    assert {*world.catalog.views} == {*world.catalog.columns} == {"other"}
    assert "clicks" not in last_of(world).offsets
    assert [one.topic for one in count_rows(world.root)] == ["other"]
    with pytest.raises(UsageError, match="clicks has no table"):
        Drop(world.context()).run("clicks")
    for n in range(3):
        click(world, n)
    assert Load(world.context()).run().rows == 3
    assert numbers(world) == [0, 1, 2]


@pytest.mark.parametrize("step", STEPS)
def test_a_drop_that_is_killed_is_finished_and_spares_all_others(world: World, step: str) -> None:
    try:
        Drop(world.context(on_step=killer(step))).run("clicks", reload=True)
    except Killed:
        Load(world.context()).run()
    Load(world.context()).run()
    assert numbers(world) == list(range(6))
    assert numbers(world, "other") == list(range(6))
    assert all(one.in_files == one.in_commits == 6 for one in count_rows(world.root))


def test_a_held_commit_is_given_up_and_its_messages_count_as_lost(world: World) -> None:
    world.register("clicks", V2)
    for n in range(6, 10):
        click(world, n, schema=V2, schema_id=3)
    put = world.catalog.put_table

    def refuse(name: str, *rest: object) -> None:
        if name == "clicks":
            raise OSError(28, "the metastore refuses it for ever")
        put(name, *rest)  # type: ignore[arg-type]

    world.catalog.put_table = refuse  # type: ignore[method-assign, assignment]
    for _ in range(2):
        assert [one.topic for one in Load(world.context()).run().refused] == ["clicks"]
    report = Acknowledge(world.context()).run("clicks")
    assert (report.lost, report.reason) == (4, None)
    state = last_of(world).tables["clicks"]
    assert (state.rows, state.lost, state.version) == (6, 4, 1)
    assert not world.context().log.held.entries()
    assert numbers(world) == list(range(6))
    assert {one.topic: one.in_files for one in count_rows(world.root)}["clicks"] == 6
    world.catalog.put_table = put  # type: ignore[method-assign]
    click(world, 10, schema=V2, schema_id=3)
    assert Load(world.context()).run().rows == 1
    assert numbers(world) == [*range(6), 10]


def test_an_acknowledged_refusal_no_longer_fails_a_load(world: World) -> None:
    with pytest.raises(UsageError, match="neither held nor refused"):
        Acknowledge(world.context()).run("clicks")
    for name in ("string", "boolean"):
        world.register("clicks", {**V1, "fields": [V1["fields"][0], {"name": "n", "type": name}]})
        assert Load(world.context()).run().left_out == "topics not loaded: 1"
        assert Acknowledge(world.context()).run("clicks").reason is not None
        report = Load(world.context()).run()
        assert report.left_out is None
        assert [one.topic for one in report.acknowledged] == ["clicks"]
        world.subjects["clicks"].pop() if name == "string" else None
    assert [one["topic"] for one in warehouse_status(world.root)["acknowledged"]] == ["clicks"]
    world.subjects["clicks"].pop()
    click(world, 6)
    assert Load(world.context()).run().rows == 1
    assert last_of(world).acknowledged == {}


def test_what_cannot_be_is_refused_before_spark_starts(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    root, broker = world.root, "127.0.0.1:1"
    monkeypatch.setattr(refusals, "KafkaLog", lambda _: world.log)
    cluster = world.log.identify([]).cluster
    check_cluster_id(root, cluster)
    check_cluster_id(root, None)
    with pytest.raises(UsageError, match=f"loaded from cluster {cluster}, and this one is other:"):
        check_cluster_id(root, "other")
    check_table(root, "clicks")
    check_drop(root, broker, "clicks", reload=True)
    with pytest.raises(UsageError, match="clicks is still on the broker"):
        check_drop(root, broker, "clicks", reload=False)
    for check in (check_table, lambda r, t: check_drop(r, broker, t, reload=True)):
        with pytest.raises(UsageError, match="topic clikcs has no table"):
            check(root, "clikcs")
    for topic in ("clicks", "clikcs"):
        with pytest.raises(UsageError, match="neither held nor refused"):
            check_acknowledge(root, topic)
    del world.log.topics["clicks"]
    check_drop(root, broker, "clicks", reload=False)
    world.register("other", {**V1, "fields": [V1["fields"][0], {"name": "n", "type": "string"}]})
    Load(world.context()).run()
    check_acknowledge(root, "other")
