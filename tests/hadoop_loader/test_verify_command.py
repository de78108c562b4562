"""`audit verify` beside a real broker: its error names the day, the count, and the cause."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from hadoop_loader._operations.erase import Erase, EraseCondition
from tests.command_line import run_command
from tests.hadoop_loader.real import Stage
from tests.soak.fire_loader import loader_context

pytestmark = pytest.mark.e2e


def test_verify_names_what_is_wrong_and_honours_an_erasure(stage: Stage, tmp_path: Path) -> None:
    topic = stage.topic("verified")
    stage.send(topic, 0, 1, 4)
    stage.send(topic, 1, 1, 3)
    stage.load()

    def verify(*options: str) -> subprocess.CompletedProcess[str]:
        brokers = ("--bootstrap", stage.broker.address, "--registry", stage.registry.url)
        store = f"sqlite:///{tmp_path}/verified.db"
        return run_command(
            "audit", "verify", *brokers, "--warehouse", str(stage.root), "--store", store, *options
        )

    assert verify().returncode == 0
    context = loader_context(stage.broker.address, stage.registry.url, stage.root)
    erased = Erase(context).run(EraseCondition.parse(f"text = '{'x' * 1000}'"))
    assert erased.rows == {topic: 7}
    assert verify().returncode == 0, "the audit still has the messages that were erased"

    stage.send(topic, 0, 1, 5)
    stage.load()
    for file in stage.root.rglob("load-00000003-*.parquet"):
        file.unlink()
    done = verify("--format", "json")
    assert done.returncode == 1
    (one,) = json.loads(done.stdout)["differences"]
    assert (one["topic"], one["rows"], one["place"]) == (topic, -5, "files")
    assert f"{topic}, day {one['day']}: 5 fewer in the files than in the commits" in done.stderr
    assert "missing files of commit 3: " in done.stderr
