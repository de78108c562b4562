"""The short form of `python -m tests.soak transactions`: a kill at any moment halves nothing."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.soak.process import soak

pytestmark = pytest.mark.e2e

KILLS = int(os.environ.get("HEADWORKS_TEST_TRANSACTION_KILLS", "2"))


def test_kills_of_broker_and_clients_halve_no_transaction(tmp_path: Path) -> None:
    done = soak("transactions", str(KILLS), "--seed", "7", "--folder", str(tmp_path))
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{KILLS} kills" in done.stdout
