"""A topic that is made again, or moved to another cluster: nothing skipped, nothing twice."""

from __future__ import annotations

import json
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from hadoop_loader._commit.commit_record import Commit
from hadoop_loader._decode.quarantine import QUARANTINE_TABLE
from hadoop_loader._fetch.kafka_log import KafkaLog
from hadoop_loader._fetch.log_identity import LogIdentity
from hadoop_loader._fetch.position import RewindPosition
from hadoop_loader._operations.load import Load
from hadoop_loader._operations.move import Move
from hadoop_loader._operations.rewind import Requeue, Rewind
from hadoop_loader._tasks.load_task import WriterSchema
from headworks._server.child_process import Service
from headworks.errors import FindingsError, UsageError
from tests.hadoop_loader.memory import MemoryLog, World, encoded
from tests.hadoop_loader.real import Stage
from tests.hadoop_loader.test_loading import DAY, V1, V2, click, numbers

pytestmark = pytest.mark.unit


@pytest.fixture(autouse=True)
def registered(request: pytest.FixtureRequest) -> None:
    if "world" in request.fixturenames:
        request.getfixturevalue("world").register("clicks", V1)


def last_of(world: World) -> Commit:
    last = world.context().log.latest()
    assert last is not None
    return last


def lives(world: World) -> list[tuple[int, int]]:
    return sorted((r["_topic_life"], r["n"]) for r in world.rows("clicks"))


@pytest.mark.parametrize("later", [3, 9, 30], ids=["shorter", "as long", "longer"])
def test_every_message_of_a_topic_that_was_made_again_is_loaded(world: World, later: int) -> None:
    for n in range(9):
        click(world, n)
    Load(world.context()).run()
    world.log.recreate("clicks")
    assert Load(world.context()).run().refused == ()
    for n in range(later):
        click(world, 100 + n)
    assert Load(world.context()).run().rows == later
    assert lives(world) == [*((1, n) for n in range(9)), *((2, 100 + n) for n in range(later))]
    assert Load(world.context()).run().committed is False
    click(world, 500)
    assert Load(world.context()).run().rows == 1
    assert last_of(world).tables["clicks"].earlier_lives == 1
    assert "coalesce(`_topic_life`, 1) AS `_topic_life`" in world.catalog.views["clicks"]


def test_a_rewind_of_the_second_life_leaves_the_rows_of_the_first(world: World) -> None:
    for n in range(6):
        click(world, n)
    world.log.append("clicks", b"junk")
    Load(world.context()).run()
    world.log.recreate("clicks")
    for n in range(6):
        click(world, 100 + n)
    world.log.append("clicks", b"more junk")
    with pytest.raises(UsageError, match="clicks was deleted and made again since its last load"):
        Rewind(world.context()).run("clicks", RewindPosition.parse("0"))
    Load(world.context()).run()
    Rewind(world.context()).run("clicks", RewindPosition.parse("0"))
    assert numbers(world) == [*range(6), *range(100, 106)]
    bad = [(r["_topic_life"], r["value"]) for r in world.rows(QUARANTINE_TABLE)]
    assert sorted(bad) == [(1, b"junk"), (2, b"more junk")]


def test_a_requeued_message_keeps_the_life_of_its_topic(world: World) -> None:
    for life in (1, 2):
        click(world, life)
        world.log.append("clicks", encoded(V2, {"at": DAY, "n": 10 * life, "how": "x"}, 7), DAY, 1)
        Load(world.context()).run()
        if life == 1:
            world.log.recreate("clicks")
    world.subjects["clicks"].append(WriterSchema(7, 2, json.dumps(V2)))
    assert Requeue(world.context()).run("clicks").rows == 2
    assert lives(world) == [(1, 1), (1, 10), (2, 2), (2, 20)]


def test_a_topic_that_is_made_again_during_a_load_waits_for_the_next(world: World) -> None:
    click(world, 0)
    Load(world.context()).run()
    click(world, 3)

    def strike(step: str) -> None:
        if step == "planned":
            messages = world.log.topics["clicks"]
            world.log.recreate("clicks")
            world.log.topics["clicks"] = messages  # other messages at the same offsets

    report = Load(world.context(on_step=strike)).run()
    assert [one.topic for one in report.refused] == ["clicks"]
    assert "made again, during the load" in report.refused[0].reason
    assert numbers(world) == [0]
    assert Load(world.context()).run().rows == 2


def test_what_an_earlier_release_loaded_gets_its_ids_with_the_next_commit(world: World) -> None:
    identify, world.log.identify = world.log.identify, _unknown  # type: ignore[method-assign]
    click(world, 0)
    Load(world.context()).run()
    assert (last_of(world).cluster, last_of(world).topic_ids) == ("", {})
    world.log.identify = identify  # type: ignore[method-assign]
    click(world, 1)
    assert Load(world.context()).run().rows == 1
    assert last_of(world).topic_ids == {"clicks": "id of clicks"}


def _unknown(topics: Any) -> LogIdentity:
    return LogIdentity()


def moved(world: World) -> MemoryLog:
    """The old cluster, after the world has got another one."""
    old, world.log = world.log, MemoryLog(cluster="two", ids={"clicks": "new"})
    return old


def test_another_cluster_is_refused_until_the_warehouse_is_moved(world: World) -> None:
    for n in range(6):
        click(world, n)
    Load(world.context()).run()
    with pytest.raises(UsageError, match="both addresses are of cluster one"):
        Move(world.context(), world.log).run(None)
    old = moved(world)
    for n in range(30):
        click(world, 100 + n)
    with pytest.raises(UsageError, match="loaded from cluster one, and this one is two"):
        Load(world.context()).run()
    with pytest.raises(UsageError, match=r"hold messages already: clicks \(30\)"):
        Move(world.context(), old).run(None)
    report = Move(world.context(), old).run("beginning")
    assert (report.cluster, report.offsets) == ("two", {"clicks": {0: 0, 1: 0, 2: 0}})
    assert Load(world.context()).run().rows == 30
    assert lives(world) == [*((1, n) for n in range(6)), *((2, 100 + n) for n in range(30))]
    world.log = old
    with pytest.raises(UsageError, match="loaded from cluster two, and this one is one"):
        Load(world.context()).run()


def test_a_move_waits_for_what_the_old_cluster_still_has(world: World) -> None:
    click(world, 0)
    Load(world.context()).run()
    click(world, 3)
    old = moved(world)
    with pytest.raises(FindingsError, match=r"1 messages of the old cluster .*clicks \(1\)"):
        Move(world.context(), old).run(None)
    assert last_of(world).number == 1


def test_copies_of_loaded_messages_are_not_loaded_again(world: World) -> None:
    for n in range(6):
        click(world, n)
    Load(world.context()).run()
    old = moved(world)
    for n in range(6):
        click(world, n)
    Move(world.context(), old).run("end")
    for n in range(6, 9):
        click(world, n)
    assert Load(world.context()).run().rows == 3
    assert numbers(world) == list(range(9))


def test_a_topic_that_the_new_cluster_gets_later_is_loaded_whole(world: World) -> None:
    click(world, 0)
    Load(world.context()).run()
    old = moved(world)
    Move(world.context(), old).run(None)
    for n in range(3):
        click(world, 10 + n)
    assert Load(world.context()).run().rows == 3


@pytest.mark.e2e
def test_a_real_topic_that_is_made_again(stage: Stage, broker: Service) -> None:
    topic = stage.topic("again")
    stage.send(topic, 0, 1, count=5)
    stage.load()
    log = KafkaLog({"bootstrap.servers": broker.address})
    before = log.identify([topic, "there.is.none"])
    assert before.cluster
    admin = AdminClient({"bootstrap.servers": broker.address})
    admin.delete_topics([topic])[topic].result(60)
    admin.create_topics([NewTopic(topic, 2)])[topic].result(60)
    assert log.identify([topic]).topics[topic] != before.topics[topic]
    stage.send(topic, 0, 1, count=8)
    assert stage.load().rows == 8
    assert sorted(stage.rows(topic, "_topic_life")) == [1] * 5 + [2] * 8
    assert stage.lags()[topic] == (0, 0.0)
