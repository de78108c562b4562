"""Which topics, which partitions, how much that is bad; and a loop that no failure ends."""

from __future__ import annotations

import json
import threading
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from hadoop_loader._commit.policy import (
    HOURLY_ABOVE_BYTES_PER_DAY,
    Policy,
    QuarantineLimit,
    bytes_per_day,
)
from hadoop_loader._commit.report import LoadReport
from hadoop_loader._decode.quarantine import QUARANTINE_TABLE as BAD
from hadoop_loader._operations.load import Load
from hadoop_loader._operations.metrics import LoaderMetrics
from hadoop_loader._operations.schedule import load_every
from hadoop_loader._operations.status import warehouse_status
from headworks import _atomic_file
from headworks._server.metrics_page import MetricsEndpoint
from headworks.errors import UnreachableError, UsageError
from tests.hadoop_loader.memory import World, encoded
from tests.hadoop_loader.test_loading import DAY, HOUR, V1, click, numbers

pytestmark = pytest.mark.unit


def test_topics_are_chosen_by_whole_name(world: World) -> None:
    for topic in ("clicks", "clicks.eu", "views", "secret.views"):
        world.register(topic, V1)
        world.log.append(topic, encoded(V1, {"at": 0, "n": 1}))
    world.log.append("wild", b"")
    report = Load(world.context(allow=r"clicks.*|.*views", deny=r"secret\..*")).run()
    assert [t.topic for t in report.topics] == ["clicks", "clicks.eu", "views"]
    assert report.ungoverned == ()
    assert "wild" in Load(world.context()).run().ungoverned
    assert set(world.catalog.columns) == {"clicks", "clicks_eu", "views", "secret_views", BAD}
    with pytest.raises(UsageError, match="--deny '\\(' is not a regular expression"):
        Policy(deny="(")


def test_hours_by_setting(world: World) -> None:
    world.register("clicks", V1)
    for n, at in enumerate([0, HOUR - 1, HOUR, 25 * HOUR]):
        click(world, n, at=at)
    Load(world.context(partitions="hourly")).run()
    days = {row["n"]: row["datepartition"] for row in world.rows("clicks")}
    assert days == {0: "1970-01-01-00", 1: "1970-01-01-00", 2: "1970-01-01-01", 3: "1970-01-02-01"}
    click(world, 4, at=0)
    Load(world.context(partitions="daily")).run()
    assert numbers(world) == [0, 1, 2, 3, 4]
    with pytest.raises(UsageError, match="--partitions 'weekly' is not known"):
        Policy(partitions="weekly")


def test_hours_by_volume_and_for_good(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    hour = {str(i): {"loaded": 1, "quarantined": 0, "bytes": 2**30} for i in range(6)}
    assert bytes_per_day(hour) == 144 * 2**30 > HOURLY_ABOVE_BYTES_PER_DAY
    assert bytes_per_day({"0": hour["0"]}) == 24 * 2**30
    world.register("clicks", V1)
    monkeypatch.setattr("hadoop_loader._commit.policy.HOURLY_ABOVE_BYTES_PER_DAY", 200)
    click(world, 0)
    Load(world.context()).run()
    for n in range(1, 100):
        click(world, n)
    Load(world.context()).run()
    click(world, 100)
    Load(world.context()).run()
    monkeypatch.setattr(
        "hadoop_loader._commit.policy.HOURLY_ABOVE_BYTES_PER_DAY", HOURLY_ABOVE_BYTES_PER_DAY
    )
    click(world, 101, at=HOUR)
    Load(world.context()).run()
    assert set(world.catalog.days["clicks"]) == {
        "1970-01-01",
        "1970-01-01-00",
        "1970-01-01-01",
    }
    assert numbers(world) == list(range(102))


@pytest.mark.parametrize(
    ("text", "rows", "bad", "broken"),
    [
        ("10%", 100_000, 1_000, False),
        ("10%", 100, 1_000, False),
        ("10%", 100, 1_001, True),
        ("10%", 100_000, 2_000, False),
        ("50", 1_000_000, 51, True),
        ("0", 10, 0, False),
        ("0", 10, 1, True),
    ],
)
def test_a_limit_is_a_share_or_a_number(text: str, rows: int, bad: int, broken: bool) -> None:
    limit = QuarantineLimit.parse(text)
    assert limit is not None
    assert limit.exceeded_by(rows, bad) is broken


def test_a_limit_is_printed_as_it_was_given() -> None:
    given = {"5%": "5% of its messages", "0.5%": "0.5% of its messages", "200": "200 messages"}
    assert {text: str(QuarantineLimit.parse(text)) for text in given} == given


@pytest.mark.parametrize("text", ["", "x", "120%", "-1", "1.5"])
def test_other_limits_are_refused(text: str) -> None:
    with pytest.raises(UsageError, match="is not a limit"):
        QuarantineLimit.parse(text)


def test_too_much_that_is_bad_holds_one_topic_back(world: World) -> None:
    world.register("clicks", V1)
    world.register("good", V1)
    click(world, 0)
    for _ in range(3):
        world.log.append("clicks", b"junk", partition=1)
    world.log.append("good", encoded(V1, {"at": 0, "n": 7}, 2))
    limit = QuarantineLimit.parse("2")
    report = Load(world.context(limit=limit)).run()
    assert [t.topic for t in report.topics] == ["good"]
    (refusal,) = report.refused
    assert "3 of 4 new messages of clicks are bad, more than 2 messages" in refusal.reason
    assert "the first is partition 1 offset 0: " in refusal.reason
    last = world.context().log.latest()
    assert last is not None
    assert (last.committed("clicks"), last.committed("good")) == ({}, {0: 1})
    assert BAD not in world.catalog.columns
    assert not (world.root / ".staging").exists()
    Load(world.context(limit=QuarantineLimit.parse("none"))).run()
    assert len(world.rows(BAD)) == 3


def test_the_report_is_kept_with_the_commit(world: World) -> None:
    world.register("clicks", V1)
    click(world, 0)
    world.log.append("wild", b"")
    report = Load(world.context()).run()
    kept = json.loads((world.root / "_headworks" / "commits" / "00000001.report").read_text())
    assert kept == json.loads(json.dumps(report.as_dict()))
    assert kept["ungoverned"] == ["wild"]


def test_status_shows_the_skipped_topics_of_a_run_without_a_commit(world: World) -> None:
    node = {"type": "record", "name": "Node", "fields": [{"name": "next", "type": "Node"}]}
    world.register("loops", node)
    world.log.append("loops", b"")
    world.log.append("wild", b"")
    assert not Load(world.context()).run().committed
    said = warehouse_status(world.root)
    assert (said["load"], said["topics"], said["ungoverned"]) == (0, [], ["wild"])
    (refusal,) = said["refused"]
    assert refusal["topic"] == "loops"
    assert "Node" in refusal["reason"]


def test_a_report_is_never_seen_half_written(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    world.register("clicks", V1)
    click(world, 0)
    Load(world.context()).run()
    before = warehouse_status(world.root)
    click(world, 1)

    def cut(path: Path, content: str, **options: Any) -> None:
        if "report" not in path.name:
            write(path, content, **options)
            return
        write(path, content[:10])
        raise OSError("the loader was killed")

    write = _atomic_file.write_file
    monkeypatch.setattr(_atomic_file, "write_file", cut)
    with pytest.raises(OSError, match="killed"):
        Load(world.context()).run()
    after = warehouse_status(world.root)
    assert (before["load"], after["load"]) == (1, 2)
    assert json.loads((world.root / "_headworks" / "last-run.report").read_text())["number"] == 1


class FakeLoader:
    def __init__(self, log: list[str], stop: threading.Event, script: list[Any]) -> None:
        self.log, self.stop, self.script = log, stop, script
        self.dead = False

    def load(self) -> LoadReport:
        step = self.script.pop(0)
        if not self.script:
            self.stop.set()
        if isinstance(step, BaseException):
            self.dead = isinstance(step, OSError)
            raise step
        self.log.append(f"load {step}")
        return LoadReport(step)

    def alive(self) -> bool:
        return not self.dead

    def close(self) -> None:
        self.log.append("close")


class Clock:
    """A clock and a stop event in one: waiting moves the time."""

    def __init__(self) -> None:
        self.time = 0.0
        self.waits: list[float] = []
        self._set = False

    def __call__(self) -> float:
        return self.time

    def is_set(self) -> bool:
        return self._set

    def set(self) -> None:
        self._set = True

    def wait(self, seconds: float) -> None:
        self.waits.append(seconds)
        self.time += seconds


def test_a_loop_survives_whatever_fails_and_opens_a_dead_session_again() -> None:
    clock, log = Clock(), []
    script: list[Any] = [1, UnreachableError("no broker"), ValueError("what"), OSError("dead"), 2]
    told: list[str] = []

    class Hears:
        def loaded(self, report: LoadReport) -> None:
            told.append(f"loaded {report.number}")

        def failed(self, error: Exception, in_a_row: int) -> None:
            told.append(f"{error} {in_a_row}")

    def open_() -> FakeLoader:
        log.append("open")
        return FakeLoader(log, clock, script)  # type: ignore[arg-type]

    load_every(600, open_, Hears(), clock, clock=clock)  # type: ignore[arg-type]
    assert told == ["loaded 1", "no broker 1", "what 2", "dead 3", "loaded 2"]
    assert log == ["open", "load 1", "close", "open", "load 2", "close"]
    assert clock.waits[:4] == [600, 600, 600, 600]


def test_a_dead_session_that_cannot_be_closed_ends_no_loop() -> None:
    clock, told = Clock(), []
    script: list[Any] = [OSError("dead"), 1]

    class Stuck(FakeLoader):
        def close(self) -> None:
            if self.dead:
                raise ValueError("stuck")

    class Hears:
        def loaded(self, report: LoadReport) -> None:
            told.append(f"loaded {report.number}")

        def failed(self, error: Exception, in_a_row: int) -> None:
            told.append(f"{error} {in_a_row}")

    load_every(10, lambda: Stuck([], clock, script), Hears(), clock, clock=clock)  # type: ignore[arg-type]
    assert told == ["dead 1", "stuck 1", "loaded 1"]


def test_a_dead_session_is_reopened_before_the_next_run() -> None:
    clock, log = Clock(), []
    opened: list[FakeLoader] = []

    class Hears:
        def loaded(self, report: LoadReport) -> None:
            opened[-1].dead = report.number == 1  # what serves has died, and nothing is new

        def failed(self, error: Exception, in_a_row: int) -> None:
            raise AssertionError(error)

    def open_() -> FakeLoader:
        log.append("open")
        opened.append(FakeLoader(log, clock, script))  # type: ignore[arg-type]
        return opened[-1]

    script: list[Any] = [1, 2]
    load_every(10, open_, Hears(), clock, clock=clock)  # type: ignore[arg-type]
    assert log == ["open", "load 1", "close", "open", "load 2", "close"]


def test_a_run_that_takes_too_long_delays_the_next_and_skips_none() -> None:
    clock = Clock()
    began: list[float] = []

    class Slow(FakeLoader):
        def load(self) -> LoadReport:
            began.append(clock.time)
            clock.time += 1500 if len(began) == 1 else 10
            return super().load()

    class Deaf:
        def loaded(self, report: LoadReport) -> None:
            pass

        def failed(self, error: Exception, in_a_row: int) -> None:
            raise AssertionError

    slow = Slow([], clock, [1, 2, 3, 4])  # type: ignore[arg-type]
    load_every(600, lambda: slow, Deaf(), clock, clock=clock)  # type: ignore[arg-type]
    assert began == [0, 1500, 2100, 2700]


@pytest.mark.e2e
def test_metrics_say_what_the_commit_log_says(world: World, tmp_path: Path) -> None:
    world.register("clicks", V1)
    for n in range(5):
        click(world, n, at=n * DAY)
    world.log.append("clicks", b"junk", partition=2)
    metrics = LoaderMetrics(world.root)
    metrics.loaded(Load(world.context()).run())
    metrics.failed()
    url = metrics.serve(MetricsEndpoint("127.0.0.1", 0))
    with urllib.request.urlopen(url) as answer:
        text = answer.read().decode()
    assert 'headworks_loader_topic_rows{topic="clicks"} 5.0' in text
    assert 'headworks_loader_topic_quarantined{topic="clicks"} 1.0' in text
    assert 'headworks_loader_offset{partition="2",topic="clicks"} 2.0' in text
    assert 'headworks_loader_runs_total{outcome="failed"} 1.0' in text
    metrics.write(tmp_path / "m.prom")
    assert "headworks_loader_phase_seconds" in (tmp_path / "m.prom").read_text()
    taken = MetricsEndpoint("127.0.0.1", int(url.removesuffix("/metrics").rpartition(":")[2]))
    with pytest.raises(UsageError, match=r"cannot serve metrics on 127\.0\.0\.1"):
        metrics.serve(taken)
    with pytest.raises(UsageError, match="metrics cannot be written"):
        metrics.write(tmp_path / "no" / "m.prom")
