"""How many workers there are, and which modules share one, and with it a Spark session."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.workers import modules_with_session, unit_of, worker_count

pytestmark = pytest.mark.unit


@pytest.mark.parametrize(
    ("quick", "workers"), [(False, [2, 5, 10, 16]), (True, [3, 7, 14, 16])], ids=["slow", "quick"]
)
def test_workers_wait_more_than_they_compute(quick: bool, workers: list[int]) -> None:
    assert [worker_count(cores, 64, quick=quick) for cores in (1, 2, 4, 64)] == workers


def test_workers_and_their_servers_need_memory() -> None:
    assert [worker_count(2, gb, quick=True) for gb in (1, 4, 6, 16)] == [2, 4, 6, 7]


def test_the_modules_that_take_the_session_are_one_unit(root: Path) -> None:
    found = frozenset(modules_with_session(root))
    assert len({unit_of(module, found) for module in found}) == 1
    alone = "tests/hadoop_loader/test_plan.py"
    assert unit_of(alone, found) == alone


def test_every_module_that_takes_the_session_is_found(root: Path) -> None:
    found = {Path(module).stem for module in modules_with_session(root)}
    assert {"test_killed", "test_datasource", "test_views", "test_metastore_limits"} <= found
    assert "test_s3" not in found
