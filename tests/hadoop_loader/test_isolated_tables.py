"""A campaign against apply: one table fails in each of its steps, and stops nothing else."""

from __future__ import annotations

import contextlib
import json
import random
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from hadoop_loader._fetch.position import RewindPosition
from hadoop_loader._operations.compact import Compaction
from hadoop_loader._operations.load import Load
from hadoop_loader._operations.metrics import LoaderMetrics
from hadoop_loader._operations.rewind import Requeue, Rewind
from hadoop_loader._operations.status import warehouse_status
from hadoop_loader._operations.verify import count_rows
from hadoop_loader._storage.failpoints import RARE_STEPS, STEPS
from headworks.errors import FindingsError, UnreachableError
from tests.hadoop_loader.memory import MemoryCatalog, World, encoded
from tests.hadoop_loader.test_loading import V1, V2, Killed, killer
from tests.hadoop_loader.trouble import (
    FILE_STEPS,
    STATEMENTS,
    TOPICS,
    Trouble,
    counted,
    produce,
    seen,
    troubled,
)
from tests.soak import troubles

pytestmark = pytest.mark.unit


@pytest.fixture
def trouble(world: World) -> Iterator[Callable[..., Trouble]]:
    """Trouble with a table of the world, from now on."""
    with ExitStack() as ends:
        yield lambda step, table="clicks", after=0: ends.enter_context(
            troubled(world, Trouble(step, table, after))
        )


@pytest.fixture
def loaded(world: World) -> World:
    """Three topics with ten rows each, and ten more events in a new schema to be loaded."""
    for topic in TOPICS:
        world.register(topic, V1)
    produce(world, range(10))
    Load(world.context()).run()
    for topic in TOPICS:
        world.register(topic, V2)
    produce(world, range(10, 20), V2)
    return world


@pytest.mark.parametrize("step", [*STATEMENTS, *FILE_STEPS])
@pytest.mark.parametrize("after", [0, 1, 2])
def test_a_table_that_fails_in_one_step_is_held_and_all_others_are_loaded(
    loaded: World, trouble: Callable[..., Trouble], step: str, after: int
) -> None:
    struck = trouble(step, after=after)
    before = loaded.catalog.views["clicks"]
    report = Load(loaded.context()).run()
    if struck.after >= 0:
        assert report.refused == (), "the step was taken too seldom"
        return
    (left,) = report.refused
    assert left.topic == "clicks"
    assert left.reason.startswith("table clicks cannot be changed: it is in use by somebody")
    assert report.left_out == "topics not loaded: 1"
    assert sorted(one.topic for one in report.topics) == ["taps", "views"]
    assert seen(loaded, "taps") == seen(loaded, "views") == list(range(20))
    assert seen(loaded, "clicks") == list(range(10)), "what it had before"
    assert (counted(loaded, "clicks"), counted(loaded, "taps")) == (10, 20)
    if step == "put_view":
        assert loaded.catalog.views["clicks"] == before

    produce(loaded, range(20, 25), V2)
    again = Load(loaded.context()).run()
    assert [one.topic for one in again.refused] == ["clicks"]
    assert seen(loaded, "taps") == list(range(25))
    assert seen(loaded, "clicks") == list(range(10))
    last = loaded.context().log.latest()
    assert last is not None
    assert sum(last.committed("clicks").values()) == 20, "later messages stay in the log"
    assert {one.topic: one.in_files for one in count_rows(loaded.root)}["clicks"] == 20
    assert [one["topic"] for one in warehouse_status(loaded.root)["refused"]] == ["clicks"]
    metrics = LoaderMetrics(loaded.root)
    metrics.loaded(again)

    struck.on = False
    last_run = Load(loaded.context()).run()
    assert last_run.refused == ()
    for topic in TOPICS:
        assert seen(loaded, topic) == list(range(25))
        assert counted(loaded, topic) == 25
        assert "WHEN coalesce(`_written`, `_load`) < 2 THEN" in loaded.catalog.views[topic]
    assert loaded.context().log.held.entries() == []
    assert not (loaded.root / ".staging").exists()
    assert Load(loaded.context()).run().committed is False


@pytest.mark.parametrize("step", [*STEPS, *RARE_STEPS[-1:]])
@pytest.mark.parametrize("trouble_with", ["put_view", "rename", "add_days"])
def test_a_kill_at_any_step_beside_a_table_that_fails_loses_and_doubles_nothing(
    loaded: World, trouble: Callable[..., Trouble], step: str, trouble_with: str
) -> None:
    rng = random.Random(f"{step}{trouble_with}")
    struck = trouble(trouble_with)
    with contextlib.suppress(Killed):
        Load(loaded.context(on_step=killer(step, rng.randint(1, 3)))).run()
    with contextlib.suppress(Killed):
        Load(loaded.context(on_step=killer(rng.choice(STEPS), rng.randint(1, 2)))).run()
    produce(loaded, range(20, 22), V2)
    with contextlib.suppress(Killed):
        Load(loaded.context(on_step=killer(step))).run()
    Load(loaded.context()).run()
    assert seen(loaded, "taps") == seen(loaded, "views") == list(range(22))
    struck.on = False
    with contextlib.suppress(Killed):
        Load(loaded.context(on_step=killer(rng.choice(STEPS)))).run()
    Load(loaded.context()).run()
    for topic in TOPICS:
        assert seen(loaded, topic) == list(range(22))
        assert counted(loaded, topic) == 22
    assert not (loaded.root / ".staging").exists()


def test_a_new_topic_whose_table_cannot_be_made_is_held(
    world: World, trouble: Callable[..., Trouble]
) -> None:
    struck = trouble("put_table")
    for topic in TOPICS:
        world.register(topic, V1)
    produce(world, range(4))
    for _ in range(3):
        assert [one.topic for one in Load(world.context()).run().refused] == ["clicks"]
        assert seen(world, "taps") == list(range(4))
        assert "clicks" not in world.catalog.views
    struck.on = False
    Load(world.context()).run()
    assert seen(world, "clicks") == list(range(4))


@pytest.mark.parametrize("step", [*STATEMENTS, "rename"])
def test_a_metastore_that_is_lost_beside_a_held_table_is_defined_again(
    loaded: World, trouble: Callable[..., Trouble], step: str
) -> None:
    struck = trouble(step)
    Load(loaded.context()).run()
    loaded.catalog = MemoryCatalog()
    trouble(step).on = struck.on = False
    Load(loaded.context()).run()
    for topic in TOPICS:
        assert seen(loaded, topic) == list(range(20))
    assert loaded.context().log.tables_to_restore() == set()


def test_a_table_that_cannot_be_restored_stops_no_other_one(
    loaded: World, trouble: Callable[..., Trouble]
) -> None:
    Load(loaded.context()).run()
    loaded.catalog = MemoryCatalog()
    struck = trouble("add_days")
    produce(loaded, range(20, 22), V2)
    assert [one.topic for one in Load(loaded.context()).run().refused] == ["clicks"]
    assert seen(loaded, "taps") == list(range(22))
    struck.on = False
    assert Load(loaded.context()).run().refused == ()
    assert seen(loaded, "clicks") == list(range(22))


def test_quarantine_that_cannot_be_written_holds_only_topics_with_bad_messages(
    loaded: World, trouble: Callable[..., Trouble]
) -> None:
    struck = trouble("put_table", "headworks_quarantine")
    loaded.log.append("clicks", b"bad")
    first = Load(loaded.context()).run()
    assert [one.topic for one in first.refused] == ["headworks_quarantine"]
    assert seen(loaded, "clicks") == list(range(20)), "the rows of the same commit are there"
    loaded.log.append("taps", b"bad")
    produce(loaded, range(20, 22), V2)
    second = Load(loaded.context()).run()
    assert [one.topic for one in second.refused] == ["headworks_quarantine", "taps"]
    assert seen(loaded, "clicks") == list(range(22))
    assert seen(loaded, "taps") == list(range(20))
    struck.on = False
    assert Load(loaded.context()).run().refused == ()
    assert sorted(row["topic"] for row in loaded.rows("headworks_quarantine")) == ["clicks", "taps"]
    assert seen(loaded, "taps") == list(range(22))


@pytest.mark.parametrize("step", ["relocate", "rename"])
def test_a_compaction_that_fails_in_one_table_leaves_its_rows_where_they_were(
    loaded: World, trouble: Callable[..., Trouble], step: str
) -> None:
    Load(loaded.context()).run()
    struck = trouble(step, after=int(step == "rename"))
    done = Compaction(loaded.context(), min_small_files=1).run()
    assert [one.topic for one in done.refused] == ["clicks"]
    for topic in TOPICS:
        assert seen(loaded, topic) == list(range(20))
    assert Load(loaded.context(now=lambda: 9000.0)).run().refused[0].topic == "clicks"
    with pytest.raises(FindingsError, match="table clicks cannot be changed"):
        Compaction(loaded.context(), min_small_files=1).run("clicks")
    struck.on = False
    Load(loaded.context(now=lambda: 9000.0)).run()
    Load(loaded.context(now=lambda: 90000.0)).run()
    for topic in TOPICS:
        assert seen(loaded, topic) == list(range(20))
    assert loaded.context().log.retired.batches() == []


@pytest.mark.parametrize("step", ["relocate", "rename"])
@pytest.mark.parametrize("table", ["clicks", "headworks_quarantine"])
def test_a_rewind_or_requeue_that_fails_is_finished_by_the_next_run(
    loaded: World, trouble: Callable[..., Trouble], step: str, table: str
) -> None:
    Load(loaded.context()).run()
    orphan = json.loads(json.dumps(V2))
    loaded.log.append("clicks", encoded(orphan, {"at": 0, "n": 99, "how": "x"}, 77))
    Load(loaded.context()).run()
    struck = trouble(step, table)
    with pytest.raises(FindingsError, match="cannot be changed"):
        Rewind(loaded.context()).run("clicks", RewindPosition.parse("earliest"))
    assert len(seen(loaded, "clicks")) == 20
    with pytest.raises(FindingsError, match="cannot be changed"):
        Requeue(loaded.context()).run("clicks")
    struck.on = False
    Load(loaded.context(now=lambda: 9000.0)).run()
    assert seen(loaded, "clicks") == list(range(20))
    assert len(loaded.rows("headworks_quarantine")) == 1
    assert Load(loaded.context(now=lambda: 90000.0)).run().refused == ()
    assert seen(loaded, "clicks") == list(range(20))


def test_commits_with_a_held_table_are_kept(loaded: World, trouble: Callable[..., Trouble]) -> None:
    struck = trouble("put_view")
    for n in range(20, 24):
        Load(loaded.context()).run()
        produce(loaded, range(n, n + 1), V2)
    log = loaded.context().log
    log.expire(1)
    assert log.numbers()[0] == 2, "the commit that changed the table"
    struck.on = False
    Load(loaded.context()).run()
    assert seen(loaded, "clicks") == list(range(24))


def test_an_entry_of_an_outlived_loader_changes_nothing(loaded: World) -> None:
    Load(loaded.context()).run()
    Compaction(loaded.context(), min_small_files=1).run()
    Load(loaded.context(now=lambda: 9000.0)).run()  # removes the files that were replaced
    log = loaded.context().log
    log.held.add(2, {"clicks"})
    assert Load(loaded.context(now=lambda: 9000.0)).run().refused == ()
    assert log.held.entries() == []
    assert seen(loaded, "clicks") == list(range(20))


def test_a_metastore_that_answers_nobody_holds_no_table(
    loaded: World, trouble: Callable[..., Trouble], monkeypatch: pytest.MonkeyPatch
) -> None:
    struck = trouble("put_table")

    def check() -> None:
        if struck.on:
            raise UnreachableError("the metastore does not answer")

    monkeypatch.setattr(loaded.catalog, "check", check, raising=False)
    with pytest.raises(UnreachableError, match="the metastore does not answer"):
        Load(loaded.context()).run()
    assert loaded.context().log.held.entries() == []
    struck.on = False
    Load(loaded.context()).run()
    assert seen(loaded, "clicks") == list(range(20))


@pytest.mark.seconds
def test_a_campaign_of_troubles_and_kills(tmp_path: Path) -> None:
    """The short form of `python -m tests.soak troubles 2000`."""
    report = troubles.campaign(tmp_path, 4, 7)
    assert report.wrong == []
    assert report.held
    assert report.kills
