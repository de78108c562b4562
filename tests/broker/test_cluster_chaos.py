"""The short form of `python -m tests.soak cluster`: random trouble, nothing acknowledged lost."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.soak.process import soak

pytestmark = pytest.mark.e2e

FATES = int(os.environ.get("HEADWORKS_TEST_CLUSTER_FATES", "2"))


def test_nothing_is_lost_or_owned_twice_whatever_happens_to_a_cluster(tmp_path: Path) -> None:
    # this seed begins with a broker that is cut off, and one that is killed
    done = soak("cluster", str(FATES), "--seed", "11", "--folder", str(tmp_path))
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{FATES} fates" in done.stdout
