"""The gate on several cores: the same verdicts, whatever happens to the other processes."""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from pathlib import Path

import psutil
import pytest

from headworks._ci import processes
from headworks._ci.gate import check
from headworks._ci.processes import map_in_forks
from tests.ci.conftest import ID, Work, event

pytestmark = pytest.mark.e2e

PARENT = os.getpid()
SCHEMAS, MAIN = Path("schemas"), ["git:main"]


@pytest.fixture(autouse=True)
def always_forks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fork for a few items, and beside the threads that other tests have left."""
    monkeypatch.setattr(processes, "_MIN_ITEMS", 1)
    monkeypatch.setattr(processes, "_MIN_CHUNK", 1)
    monkeypatch.setattr(processes, "_may_fork", lambda: True)


def squared_by(item: int) -> tuple[int, bool]:
    return item * item, os.getpid() == PARENT


def test_results_are_in_order_and_several_processes_work() -> None:
    barrier = multiprocessing.get_context("fork").Barrier(3)
    begun = set[int]()

    def work(item: int) -> tuple[int, bool]:
        if os.getpid() not in begun:
            begun.add(os.getpid())
            barrier.wait(60)  # until every process has an item
        return squared_by(item)

    found = map_in_forks(range(1000), work, work, processes=3)
    assert [square for square, _ in found] == [item * item for item in range(1000)]
    assert {is_parent for _, is_parent in found} == {True, False}


def test_this_process_does_what_a_fork_leaves() -> None:
    def in_fork(item: int) -> int | None:
        return None if item % 3 == 0 else item

    assert map_in_forks(range(500), in_fork, lambda item: item, processes=2) == [*range(500)]


@pytest.mark.parametrize("end", ["killed", "raises"])
def test_this_process_does_what_a_fork_that_ended_had_taken(end: str) -> None:
    def in_fork(item: int) -> int:
        if end == "killed":
            os.kill(os.getpid(), signal.SIGKILL)
        raise RuntimeError("a fault")

    assert map_in_forks(range(100), in_fork, lambda item: item, processes=4) == [*range(100)]


def test_an_error_of_this_process_is_raised_and_no_fork_stays() -> None:
    raised = multiprocessing.get_context("fork").Event()

    def in_fork(item: int) -> int:
        raised.wait(60)
        return item

    def here(item: int) -> int:
        raised.set()
        raise LookupError(str(item))

    before = psutil.Process().children()
    with pytest.raises(LookupError):
        map_in_forks(range(10_000), in_fork, here, processes=3)
    assert psutil.Process().children() == before


def test_a_process_with_a_second_thread_does_not_fork(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    monkeypatch.setattr(processes, "_MIN_ITEMS", 1)
    done = threading.Event()
    other = threading.Thread(target=done.wait)
    other.start()
    try:
        found = map_in_forks([1, 2], squared_by, squared_by, processes=2)
    finally:
        done.set()
        other.join()
    assert found == [(1, True), (4, True)]


def test_the_verdicts_on_a_catalogue_do_not_depend_on_the_processes(
    work: Work, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = {"type": "record", "name": "Place", "namespace": "acme", "fields": [ID]}
    work.git("checkout", "-q", "main")
    work.write("place.avsc", place)
    at = {"name": "at", "type": "acme.Place"}
    for version in range(3):
        more = [{"name": f"more_{i}", "type": "int", "default": i} for i in range(version)]
        for number in range(12):
            fields = [ID, *more, *([at] if number % 3 == 0 else [])]
            name = f"Event{number}"
            work.write(f"{name}.avsc", event(*fields, topic=name.lower(), name=name))
        work.commit()
    work.git("checkout", "-q", "-b", "later")
    work.write(
        "Event4.avsc", event({"name": "id", "type": "string"}, topic="event4", name="Event4")
    )
    work.write("Event5.avsc", event(ID, topic="event5", name="Event5"))
    work.write("Event6.avsc", "{")
    (work.schemas / "Event7.avsc").unlink()
    monkeypatch.setattr(processes, "_cores", lambda: 1)
    alone = check(SCHEMAS, MAIN)
    assert [one.subject for one in alone.subjects if one.refused] == [
        "event4-value",
        None,
        "event7-value",
    ]
    monkeypatch.setattr(processes, "_cores", lambda: 3)
    assert check(SCHEMAS, MAIN).as_dict() == alone.as_dict()
