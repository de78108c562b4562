"""A loader that was just started reads the versions that the last one stored."""

from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import Any

import pytest

from hadoop_loader._commit.registry_subjects import (
    RegistrySubjects,
    SchemaLookup,
    require_versions,
)
from headworks.registry_client import RegistryClient, SubjectVersion
from headworks.schema import subject_of

pytestmark = pytest.mark.unit

TOPICS = [f"t{number}" for number in range(12)]
_FEW = ["latest", "numbers"]


class Registry(RegistryClient):
    """A registry in memory, which remembers what it was asked."""

    def __init__(self) -> None:
        super().__init__("http://registry:1")
        self.asked: list[str] = []
        self.held = [
            SubjectVersion(
                subject_of(topic),
                version,
                10 * number + version,
                json.dumps({"type": "record", "name": "R", "doc": f"é{version}", "fields": []}),
                registered_ms=1_000 + number,
            )
            for number, topic in enumerate(TOPICS)
            for version in range(1, number % 3 + 2)
        ]

    def list_versions(self, prefix: str = "", **more: Any) -> list[SubjectVersion]:
        self.asked.append("latest" if more["latest_only"] else "all")
        newest = {one.subject: one for one in self.held}
        return [*newest.values()] if more["latest_only"] else self.held

    def version_numbers(self, prefix: str = "", **more: Any) -> dict[str, list[int]]:
        self.asked.append("numbers")
        found: dict[str, list[int]] = {}
        for one in self.held:
            found.setdefault(one.subject, []).append(one.version)
        return found


@pytest.fixture
def registry() -> Registry:
    return Registry()


def _read(registry: Registry, file: Path | None, **more: Any) -> dict[str, SchemaLookup]:
    """Ask as a process does that has just started."""
    registry.asked.clear()
    found = RegistrySubjects(registry, cache=file, **more).versions(TOPICS)
    wait_for_file()
    return found


def wait_for_file() -> None:
    """Wait for the threads that write caches, as a process does that ends."""
    for thread in threading.enumerate():
        if thread.name == "registry-cache":
            thread.join(60)


def test_the_versions_of_the_last_process_are_not_read_again(
    registry: Registry, tmp_path: Path
) -> None:
    file = tmp_path / "versions"
    expected = _read(registry, None)
    assert [len(require_versions(topic, expected)) for topic in TOPICS[:4]] == [1, 2, 3, 1]
    assert _read(registry, file) == expected
    assert registry.asked == ["latest", "all"]
    stored = file.stat().st_mtime_ns
    for _ in range(2):
        assert _read(registry, file) == expected
        assert registry.asked == _FEW
    assert file.stat().st_mtime_ns == stored  # an unchanged file is not written again


def test_a_list_may_have_the_versions_of_a_subject_apart(registry: Registry) -> None:
    expected = _read(registry, None)
    registry.held.sort(key=lambda one: one.version)  # a registry need not sort by subject
    assert _read(registry, None) == expected


def test_a_changed_subject_alone_is_read_again(registry: Registry, tmp_path: Path) -> None:
    file = tmp_path / "versions"
    _read(registry, file)
    newest = registry.held[-1]
    registry.held.append(newest._replace(version=9, id=900, registered_ms=5_000))
    found = _read(registry, file)
    assert registry.asked == [*_FEW, "all"]
    assert found == _read(registry, None)
    assert _read(registry, file) == found
    assert registry.asked == _FEW


def test_versions_of_another_registry_are_not_used(registry: Registry, tmp_path: Path) -> None:
    file = tmp_path / "versions"
    _read(registry, file)
    registry.held = [one._replace(text='"int"', registered_ms=7) for one in registry.held]
    assert _read(registry, file) == _read(registry, None)
    # A registry that reports no times could be any.
    registry.held = [one._replace(text='"long"', registered_ms=None) for one in registry.held]
    for _ in range(2):
        assert _read(registry, file) == _read(registry, None)
    registry.held = [one._replace(text='"bytes"') for one in registry.held]
    assert _read(registry, file) == _read(registry, None)


@pytest.mark.parametrize("at", [3, 40, -40])
def test_a_damaged_file_is_written_again(registry: Registry, tmp_path: Path, at: int) -> None:
    file = tmp_path / "versions"
    expected = _read(registry, file)
    good = file.read_bytes()
    flipped = bytearray(good)
    flipped[at] ^= 4
    for content in (bytes(flipped), good[: len(good) // 2], b""):
        file.write_bytes(content)
        assert _read(registry, file) == expected
        assert registry.asked == ["latest", "all"]
        assert file.read_bytes() == good


def test_texts_for_other_tables_are_not_used(registry: Registry, tmp_path: Path) -> None:
    file = tmp_path / "versions"
    _read(registry, file)
    _read(registry, file, recursive_json=True)
    assert registry.asked == ["latest", "all"]


def test_a_file_that_cannot_be_written_is_reported_and_missed_by_nobody(
    registry: Registry, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "versions").mkdir()
    assert _read(registry, tmp_path / "versions") == _read(registry, None)
    assert "versions cannot be read: " in caplog.text
    assert "versions cannot be written: " in caplog.text
