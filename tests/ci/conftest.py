"""A real git repository with a catalogue in it."""

from __future__ import annotations

import json
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.tools import require


@dataclass(frozen=True)
class Work:
    """A real git repository with a catalogue in it."""

    root: Path

    @property
    def schemas(self) -> Path:
        return self.root / "schemas"

    def git(self, *arguments: str) -> str:
        done = subprocess.run(
            ["git", "-C", str(self.root), *arguments], check=True, capture_output=True, text=True
        )
        return done.stdout.strip()

    def write(self, name: str, value: Any) -> Path:
        path = self.schemas / name
        path.parent.mkdir(parents=True, exist_ok=True)
        text = value if isinstance(value, str) else json.dumps(value, indent=2)
        path.write_text(text + "\n", encoding="utf-8")
        return path

    def commit(self) -> str:
        self.git("add", "-A")
        self.git("commit", "-q", "-m", "a change")
        return self.git("rev-parse", "HEAD")


def event(*fields: Any, topic: str = "trips", name: str = "Trip", **more: Any) -> dict[str, Any]:
    return {
        "type": "record",
        "name": name,
        "namespace": "acme",
        "doc": "A trip.",
        "headworks": {"topic": topic},
        "fields": [{"doc": "A field.", **field} for field in fields],
        **more,
    }


ID = {"name": "id", "type": "long"}


@pytest.fixture
def work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Work:
    """A repository on `main` with one event, trips; HEAD is on the branch `change`.

    The policy is `avro`: tests of another one write their own governance.toml.
    """
    require("git")
    one = Work(tmp_path)
    one.git("init", "-q", "-b", "main")
    one.git("config", "user.email", "someone@example.org")
    one.git("config", "user.name", "Someone")
    one.write("governance.toml", '[default]\npolicy = "avro"\n')
    one.write("trips.avsc", event(ID))
    one.commit()
    one.git("checkout", "-q", "-b", "change")
    monkeypatch.chdir(tmp_path)
    return one
