"""A load without Spark: what becomes rows, what is set aside, and a crash at every step."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Sequence
from typing import Any

import pytest

from hadoop_loader._commit.report import SkippedTopic
from hadoop_loader._operations.audit_counts import audit_events
from hadoop_loader._operations.load import Load
from hadoop_loader._storage.failpoints import STEPS
from headworks.errors import CorruptError, RefusedError, UnreachableError, UsageError
from tests.hadoop_loader.memory import MemoryCatalog, MemoryJobs, World, encoded

pytestmark = pytest.mark.unit

HOUR = 3_600_000
DAY = 24 * HOUR
V1: Any = {
    "type": "record",
    "name": "Click",
    "headworks": {"topic": "clicks", "event_time": "at"},
    "fields": [
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "n", "type": "int"},
    ],
}
V2: Any = {**V1, "fields": [*V1["fields"], {"name": "how", "type": "string", "default": "mouse"}]}


def click(world: World, n: int, at: int = 0, *, schema: Any = V1, schema_id: int = 1) -> None:
    value = {"at": at, "n": n, **({"how": "touch"} if schema is V2 else {})}
    world.log.append("clicks", encoded(schema, value, schema_id), at, n % 3)


def numbers(world: World, table: str = "clicks") -> list[int]:
    return sorted(row["n"] for row in world.rows(table))


def test_loads_what_is_new_and_only_that(world: World) -> None:
    world.register("clicks", V1)
    for n in range(20):
        click(world, n, at=n * 5 * HOUR)
    first = Load(world.context()).run()
    assert (first.number, first.rows) == (1, 20)
    assert numbers(world) == list(range(20))
    assert Load(world.context()).run().number == 1
    click(world, 20)
    second = Load(world.context()).run()
    assert (second.number, second.rows) == (2, 1)
    assert numbers(world) == list(range(21))
    assert second.topics[0].offsets == {2: (6, 7)}
    assert not (world.root / ".staging").exists()


def test_a_load_without_compiled_code_says_that_it_is_slow(
    world: World, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    world.register("clicks", V1)
    for n, compiled in enumerate((True, False)):
        monkeypatch.setattr("hadoop_loader._operations.load.COMPILED", compiled)
        click(world, n)
        assert Load(world.context()).run().rows == 1
        warnings = [record for record in caplog.records if record.levelname == "WARNING"]
        assert len(warnings) == n
    assert "fix: install gcc and Python's headers" in caplog.text


def test_a_topic_of_fifty_times_the_others_is_shared_by_the_tasks(world: World) -> None:
    for topic in ("clicks", "small", "smaller"):
        world.register(topic, V1)
    value = encoded(V1, {"at": 0, "n": 1})
    for _ in range(25_000):
        world.log.append("clicks", value)
    for topic, schema_id in (("small", 2), ("smaller", 3)):
        for _ in range(500):
            world.log.append(topic, encoded(V1, {"at": 0, "n": 1}, schema_id))
    report = Load(world.context()).run()
    assert sum(task.messages for task in report.tasks) == 26_000
    assert len(report.tasks) == 2
    assert max(task.messages for task in report.tasks) < 0.7 * 26_000
    assert sum(task.bytes for task in report.tasks) == sum(t.bytes for t in report.topics)
    assert report.as_dict()["tasks"][0]["topics"] >= 1


def test_rows_are_in_the_partition_of_their_event_time(world: World) -> None:
    world.register("clicks", V1)
    for n, at in enumerate([0, DAY - 1, DAY, 40 * DAY, -1]):
        click(world, n, at=at)
    world.log.append("clicks", encoded(V1, {"at": 5 * DAY, "n": 9}), timestamp=DAY, partition=0)
    Load(world.context()).run()
    days = {row["n"]: row["datepartition"] for row in world.rows("clicks")}
    assert days == {
        0: "1970-01-01",
        1: "1970-01-01",
        2: "1970-01-02",
        3: "1970-02-10",
        4: "1969-12-31",
        9: "1970-01-06",
    }


def test_metadata_says_where_a_row_came_from(world: World) -> None:
    world.register("clicks", V1)
    world.register("clicks", V2)
    click(world, 0)
    click(world, 3, schema=V2, schema_id=2)
    Load(world.context()).run()
    found = sorted(
        (r["n"], r["how"], r["_partition"], r["_offset"], r["_schema_version"], r["_load"])
        for r in world.rows("clicks")
    )
    assert found == [(0, "mouse", 0, 0, 1, 1), (3, "touch", 0, 1, 2, 1)]


def test_bad_messages_are_kept_with_their_reason_and_counted(world: World) -> None:
    world.register("clicks", V1)
    click(world, 1, at=HOUR)
    far = encoded(V1, {"at": 2**52, "n": 1})
    for value in (None, b"", b"junk", b"\0\0\0\0\x63abc", b"\0\0\0\0\1\x01", far):
        world.log.append("clicks", value, timestamp=HOUR, partition=1)
    report = Load(world.context()).run()
    assert (report.topics[0].rows, report.topics[0].quarantined) == (1, 6)
    reasons = [row["reason"] for row in world.rows("headworks_quarantine")]
    expected = [
        "the message has no value (a tombstone)",
        "message value of 0 bytes is too short for a schema id",
        "message value of 4 bytes is too short for a schema id",
        "schema id 99 is no version of clicks-value",
        "the datum ends too early",
        "the event time is not in the years 1 to 9999",
    ]
    assert sorted(reasons) == sorted(expected)
    values = {row["value"] for row in world.rows("headworks_quarantine")}
    assert values == {None, b"", b"junk", b"\0\0\0\0\x63abc", b"\0\0\0\0\1\x01", far}
    ids = {"clicks": {1: 1}}
    (event,) = audit_events(world.published[0], warehouse="w", host="h", schema_ids=ids)
    assert event["schemas"] == [{"written": 1, "read": 1, "messages": 1}]
    (without,) = audit_events(world.published[0], warehouse="w", host="h")
    assert without == {**event, "schemas": None}  # the version was deleted for good
    assert event["counts"] == {"loaded": 1, "quarantined": 6}
    assert event["window_start"] == HOUR


def test_ungoverned_topics_are_reported_and_others_go_on(world: World) -> None:
    world.register("clicks", V1)
    world.log.append("raw", b"hello")
    world.log.append("__offsets", b"internal")
    click(world, 1)
    report = Load(world.context()).run()
    assert report.ungoverned == ("raw",)
    assert numbers(world) == [1]


def test_topics_that_no_table_can_follow_are_refused_by_name(world: World) -> None:
    world.register("clicks", V1)
    click(world, 1)
    recursive = {
        "type": "record",
        "name": "T",
        "fields": [{"name": "kids", "type": {"type": "array", "items": "T"}}],
    }
    world.register("tree", recursive)
    world.log.append("tree", encoded(recursive, {"kids": []}, 2))
    world.register("Clicks", V1)
    report = Load(world.context()).run()
    assert [r.topic for r in report.refused] == ["tree"]
    assert "T contains itself" in report.refused[0].reason
    assert numbers(world) == [1]
    world.log.append("CLICKS", b"")
    world.subjects["CLICKS"] = world.subjects["clicks"]
    (collision, _) = Load(world.context()).run().refused
    assert collision == SkippedTopic(
        "CLICKS",
        "topics clicks and CLICKS would both be table clicks\n  fix: rename one of the topics",
    )


def test_no_topic_gets_a_table_where_the_loader_keeps_its_own(world: World) -> None:
    topics = (
        "_headworks",
        "headworks-quarantine",
        "headworks.completeness",
        "headworks.self.test",
    )
    for topic in topics:
        world.register(topic, V1)
        world.log.append(topic, encoded(V1, {"at": 0, "n": 1}, world.subjects[topic][0].schema_id))
    refused = Load(world.context()).run().refused
    assert tuple(one.topic for one in refused) == topics
    assert "topics (the loader's own) and _headworks would both be table" in refused[0].reason


def test_a_change_that_files_cannot_follow_leaves_offsets_where_they_were(world: World) -> None:
    world.register("clicks", V1)
    world.register("other", V1)
    click(world, 1)
    Load(world.context()).run()
    wide = {**V1, "fields": [V1["fields"][0], {"name": "n", "type": ["null", "string"]}]}
    world.register("clicks", wide)
    click(world, 4)
    world.log.append("other", encoded(V1, {"at": 0, "n": 5}, 2))
    report = Load(world.context(rebuild="never")).run()
    assert "column n cannot change from int to string" in report.refused[0].reason
    assert "fix: `headworks load rebuild clicks` rewrites" in report.refused[0].reason
    assert [t.topic for t in report.topics] == ["other"]
    last = world.context().log.latest()
    assert last is not None
    assert last.committed("clicks") == {1: 1}


def test_a_new_schema_alone_evolves_the_table(world: World) -> None:
    world.register("clicks", V1)
    click(world, 1)
    Load(world.context()).run()
    world.register("clicks", V2)
    report = Load(world.context()).run()
    assert (report.number, report.rows) == (2, 0)
    assert (
        "WHEN coalesce(`_written`, `_load`) < 2 THEN 'mouse' ELSE `how` END"
        in world.catalog.views["clicks"]
    )
    assert Load(world.context()).run().number == 2


def test_lost_messages_are_refused_or_skipped_and_told(world: World) -> None:
    world.register("clicks", V1)
    click(world, 0)
    Load(world.context()).run()
    click(world, 3)
    click(world, 6)
    world.log.low["clicks", 0] = 2
    assert "were dropped by the broker's retention" in Load(world.context()).run().refused[0].reason
    report = Load(world.context(skip_lost=True)).run()
    assert (report.topics[0].rows, report.topics[0].lost) == (1, 1)
    assert numbers(world) == [0, 6]


def test_a_lost_metastore_is_defined_again(world: World) -> None:
    world.register("clicks", V1)
    click(world, 0, at=3 * DAY)
    world.log.append("clicks", b"junk")
    Load(world.context()).run()
    before, world.catalog = world.catalog, MemoryCatalog()
    Load(world.context()).run()
    assert vars(world.catalog) == vars(before)
    world.catalog = MemoryCatalog()
    world.register("clicks", V2)
    click(world, 1, at=9 * DAY)
    with pytest.raises(Killed):
        Load(world.context(on_step=killer("committed"))).run()
    world.catalog = MemoryCatalog()
    Load(world.context()).run()
    assert numbers(world) == [0, 1]
    assert len(world.rows("headworks_quarantine")) == 1


def test_a_run_that_read_something_else_is_not_committed(world: World) -> None:
    world.register("clicks", V1)
    click(world, 0)
    with pytest.raises(CorruptError, match="did not read what was planned"):
        Load(world.context(jobs=Nothing(world.log))).run()
    assert world.context().log.latest() is None


class Nothing(MemoryJobs):
    def load(self, tasks: Any) -> list[Any]:
        return []


class Killed(BaseException):
    """The process is gone: nothing catches it."""


def killer(step: str, times: int = 1) -> Any:
    left = [times]

    def on_step(at: str) -> None:
        if at == step:
            left[0] -= 1
            if left[0] == 0:
                raise Killed

    return on_step


@pytest.mark.parametrize("step", STEPS)
@pytest.mark.parametrize("again", [None, *STEPS])
def test_a_crash_at_any_step_loses_and_doubles_nothing(
    world: World, step: str, again: str | None
) -> None:
    rng = random.Random(f"{step}{again}")
    world.register("clicks", V1)
    for n in range(10):
        click(world, n, at=n * 7 * HOUR)
    Load(world.context()).run()
    world.register("clicks", V2)
    for n in range(10, 25):
        click(world, n, at=n * 7 * HOUR, schema=V2, schema_id=2)
    with pytest.raises(Killed):
        Load(
            world.context(on_step=killer(step, rng.randint(1, 3) if step == "renaming" else 1))
        ).run()
    for n in range(25, 30):
        click(world, n, at=n * HOUR, schema=V2, schema_id=2)
    if again is not None:
        with contextlib.suppress(Killed):
            Load(world.context(on_step=killer(again))).run()
    Load(world.context()).run()
    assert numbers(world) == list(range(30))
    seen = {(r["_partition"], r["_offset"]) for r in world.rows("clicks")}
    assert len(seen) == 30
    assert not (world.root / ".staging").exists()
    counted = {
        event["id"]: event["counts"]["loaded"]
        for commit in world.published
        for event in audit_events(commit, warehouse="w", host="h")
    }
    assert sum(counted.values()) == 30


def test_lost_messages_are_counted_in_the_audit(world: World) -> None:
    world.register("clicks", V1)
    click(world, 0)
    Load(world.context()).run()
    click(world, 3)
    click(world, 6)
    world.log.low["clicks", 0] = 2
    Load(world.context(skip_lost=True, now=lambda: 7200.0)).run()
    found = [e for c in world.published for e in audit_events(c, warehouse="w", host="h")]
    assert [e["window_start"] for e in found if "lost" in e["counts"]] == [0]
    assert sum(e["counts"].get("lost", 0) for e in found) == 1
    last = world.context().log.latest()
    assert last is not None
    assert last.tables["clicks"].lost == 1


def test_a_registry_that_does_not_answer_leaves_offsets_where_they_were(world: World) -> None:
    world.register("clicks", V1)
    click(world, 0)
    Load(world.context()).run()
    click(world, 1)

    def silent(topics: Sequence[str]) -> Any:
        raise UnreachableError(f"registry http://r does not answer for {topics[0]}")

    with pytest.raises(UnreachableError, match="registry http://r does not answer for clicks"):
        Load(world.context(versions=silent)).run()
    assert world.context().log.numbers() == [1]
    assert Load(world.context()).run().rows == 1
    assert numbers(world) == [0, 1]


def test_a_topic_whose_schemas_may_not_be_read_holds_up_no_other(world: World) -> None:
    for topic in ("clicks", "secret"):
        world.register(topic, V1)
    click(world, 0)
    world.log.append("secret", encoded(V1, {"at": 0, "n": 1}, 2))
    context = world.context()
    no = RefusedError("registry http://r refused (40301): no reader of secret", status=403)
    barred = world.context(versions=lambda topics: {**context.versions(topics), "secret": no})
    report = Load(barred).run()
    assert [(t.topic, t.rows) for t in report.topics] == [("clicks", 1)]
    assert report.refused == (SkippedTopic("secret", str(no)),)
    assert [t.topic for t in Load(context).run().topics] == ["secret"], "its offsets had stayed"

    shut = world.context(versions=lambda topics: dict.fromkeys(topics, no))
    with pytest.raises(RefusedError, match="no reader of secret"):  # of nothing at all, that is
        Load(shut).run()


def test_a_metastore_that_fails_after_the_commit_is_caught_up_with(world: World) -> None:
    class Locked(MemoryCatalog):
        def add_days(self, name: str, days: Any) -> None:
            raise UsageError("the metastore is locked")

    world.register("clicks", V1)
    click(world, 0)
    working, world.catalog = world.catalog, Locked()
    (left,) = Load(world.context()).run().refused
    assert left.topic == "clicks"
    assert "table clicks cannot be changed: the metastore is locked; " in left.reason
    world.catalog = working
    click(world, 1)
    assert Load(world.context()).run().number == 2
    assert numbers(world) == [0, 1]
