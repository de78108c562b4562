"""A loader that stands by: it waits for the lock, and takes over when the holder is killed."""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from hadoop_loader._commit.report import LoadReport
from hadoop_loader._operations import schedule
from hadoop_loader._operations.service import RunRecorder, WarehouseService, load_until_signal
from hadoop_loader._storage.lock import LocalLock
from headworks.errors import UnreachableError, UsageError
from tests.command_line import run_command
from tests.waiting import until

pytestmark = pytest.mark.e2e

HOLDER = """
import sys, time; from pathlib import Path
from hadoop_loader._storage.lock import LocalLock
lock = LocalLock(Path(sys.argv[1])); print("held", flush=True); time.sleep(600)
"""


class Locked:
    """A warehouse that is only a lock, and asks to stop when it has loaded."""

    def __init__(self, lock: Path) -> None:
        self._lock = LocalLock(lock)

    def load(self, progress: object) -> LoadReport:
        os.kill(os.getpid(), signal.SIGTERM)
        return LoadReport(1)

    def alive(self) -> bool:
        return True

    def close(self) -> None:
        self._lock.release()


@contextmanager
def holder(lock: Path) -> Iterator[subprocess.Popen[bytes]]:
    command = [sys.executable, "-c", HOLDER, str(lock)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"held\n"
        yield process
        process.kill()


def lines(caplog: pytest.LogCaptureFixture) -> list[str]:
    """The lines of the loader: clients of earlier tests may log in threads of their own."""
    return [r.getMessage() for r in caplog.records if r.name.startswith("hadoop_loader")]


def service(open_: Callable[[], Locked]) -> WarehouseService[Locked]:
    @contextmanager
    def silent() -> Iterator[None]:
        yield

    return WarehouseService(open_, lambda opened: None, silent)


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(schedule, "_STANDBY_SECONDS", 0.02)


def test_it_takes_over_from_a_loader_that_is_killed(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    lock, page = tmp_path / "_headworks" / "lock", tmp_path / "loader.prom"
    reports: list[LoadReport] = []
    runs = RunRecorder(reports.append, page)
    runs.measure(tmp_path, None)
    looks: list[int] = []

    def open_() -> Locked:
        looks.append(1)
        return Locked(lock)

    with caplog.at_level(logging.INFO), holder(lock) as process:

        def kill_when_it_waits() -> None:
            until(lambda: len(looks) > 3 and "headworks_loader_standby 1.0" in page.read_text())
            process.kill()

        killing = threading.Thread(target=kill_when_it_waits)
        killing.start()
        load_until_signal(600, service(open_), runs, standby=True)
        killing.join()
    assert [report.number for report in reports] == [1]
    assert [line.partition(" another")[0] for line in lines(caplog)] == [
        f"standing by: warehouse {tmp_path} is in use by",
        "the warehouse is free: this loader takes over",
    ]
    text = page.read_text()
    assert "headworks_loader_standby 0.0" in text
    assert 'headworks_loader_runs_total{outcome="failed"} 0.0' in text, "waiting is no failure"


def test_it_outlives_what_goes_wrong_while_it_waits(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    lock, reports = tmp_path / "_headworks" / "lock", list[LoadReport]()
    looks: list[int] = []

    with holder(lock) as process:

        def open_() -> Locked:
            looks.append(1)
            if len(looks) in (2, 3):
                raise UnreachableError("no schema registry answers")
            if len(looks) == 5:
                process.kill()
                process.wait()
            return Locked(lock)

        runs = RunRecorder(reports.append, None)
        with caplog.at_level(logging.WARNING):
            load_until_signal(600, service(open_), runs, standby=True)
    assert [report.number for report in reports] == [1]
    [failed] = lines(caplog)
    assert failed.endswith("is repeated: no schema registry answers")


def test_it_can_be_stopped_while_it_waits(tmp_path: Path) -> None:
    lock = tmp_path / "_headworks" / "lock"
    runs = RunRecorder(lambda report: None, None)

    def open_() -> Locked:
        os.kill(os.getpid(), signal.SIGTERM)
        return Locked(lock)

    with holder(lock):
        load_until_signal(600, service(open_), runs, standby=True)


def test_another_error_on_opening_ends_it(tmp_path: Path) -> None:
    def open_() -> Locked:
        raise UsageError("Java 17 is missing")

    runs = RunRecorder(lambda report: None, None)
    with pytest.raises(UsageError, match="Java 17"):
        load_until_signal(600, service(open_), runs, standby=True)


def test_a_single_run_does_not_stand_by() -> None:
    done = run_command("load", "run", "--standby")
    assert done.returncode == 2
    assert "--standby is for a loader that goes on" in done.stderr
