"""The short forms of two campaigns: hurt state folders, and workers that end."""

from __future__ import annotations

from pathlib import Path

import pytest

from headworks._server.child_process import Service
from tests.soak.state_folders import HARMS, hurt
from tests.soak.workers import end

pytestmark = pytest.mark.e2e


def test_no_state_folder_ends_a_producer(
    tmp_path: Path, broker: Service, registry: Service
) -> None:
    report = hurt(tmp_path, broker.address, registry.url, len(HARMS), seed=7)
    assert report.wrong == []
    assert report.cases.total() == len(HARMS)


def test_the_end_of_workers_loses_nothing(
    tmp_path: Path, broker: Service, registry: Service
) -> None:
    kinds = ["pool by forkserver", "processes by spawn"]
    report = end(tmp_path, broker.address, registry.url, kinds, 1, None)
    assert (report.wrong, report.rounds.total()) == ([], 2)
