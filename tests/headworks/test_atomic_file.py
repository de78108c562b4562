"""An atomic write leaves the old or the new content, never a part, whatever fails."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from headworks._atomic_file import replace_file, sync_folder, write_file

pytestmark = pytest.mark.e2e


@pytest.mark.parametrize("content", [b"\x00new\xff", "new, \N{SNOWMAN}", b"", ""])
def test_a_file_is_created_and_replaced(tmp_path: Path, content: bytes | str) -> None:
    path = tmp_path / "state"
    for _ in range(2):
        replace_file(path, content)
        expected = content if isinstance(content, bytes) else content.encode()
        assert path.read_bytes() == expected
        assert os.listdir(tmp_path) == ["state"]


@pytest.mark.parametrize("failing", ["open", "fsync", "replace"])
def test_a_failure_leaves_the_old_content_and_no_temporary_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failing: str
) -> None:
    path = tmp_path / "state"
    path.write_bytes(b"old")

    def full(*_arguments: Any, **_named: Any) -> Any:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, failing, full)
        with pytest.raises(OSError, match="No space"):
            replace_file(path, b"new")
    assert path.read_bytes() == b"old"
    assert os.listdir(tmp_path) == ["state"]


class KilledError(BaseException):
    """Stands for a SIGKILL."""


def kill_at(count: int, patch: pytest.MonkeyPatch) -> None:
    """From the `count`th of these calls on, nothing happens any more."""
    left = [count]
    for name in ("open", "fsync", "replace", "close"):
        real = getattr(os, name)

        def call(*arguments: Any, _real: Any = real, **named: Any) -> Any:
            left[0] -= 1
            if left[0] <= 0:
                raise KilledError
            return _real(*arguments, **named)

        patch.setattr(os, name, call)


def test_a_kill_at_any_step_leaves_the_old_or_the_new(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found, killed, count = set(), True, 0
    while killed:
        count += 1
        path = tmp_path / f"state-{count}"
        path.write_bytes(b"old")
        with monkeypatch.context() as patch:
            kill_at(count, patch)
            try:
                replace_file(path, b"new")
                killed = False
            except KilledError:
                pass
        found.add(path.read_bytes())
        replace_file(path, b"newer")  # a temporary file that the kill left does not matter
        assert path.read_bytes() == b"newer"
    assert count > 5
    assert found == {b"old", b"new"}


def test_a_durable_write_syncs_the_file_before_the_rename_and_the_folder_after_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps: list[str] = []
    real_replace = os.replace

    def sync(fd: int) -> None:
        steps.append("sync " + Path(os.readlink(f"/proc/self/fd/{fd}")).name)

    def rename(source: Path, target: Path) -> None:
        steps.append(f"rename to {target.name}")
        real_replace(source, target)

    monkeypatch.setattr(os, "fsync", sync)
    monkeypatch.setattr(os, "replace", rename)
    replace_file(tmp_path / "state", b"new")
    assert steps == ["sync state-new", "rename to state", f"sync {tmp_path.name}"]
    steps.clear()
    replace_file(tmp_path / "state", b"new", durable=False)
    assert steps == ["rename to state"]
    steps.clear()
    sync_folder(tmp_path)
    assert steps == [f"sync {tmp_path.name}"]


@pytest.mark.parametrize("mode", [0o600, 0o644])
def test_the_mode_is_set_whatever_the_umask_and_a_left_file_say(tmp_path: Path, mode: int) -> None:
    path = tmp_path / "secret"
    (tmp_path / "secret-new").touch(0o666)
    replace_file(path, b"x", mode=mode)
    assert path.stat().st_mode & 0o777 == mode


def test_writers_with_temporary_files_of_their_own_do_not_meet(tmp_path: Path) -> None:
    path, other = tmp_path / "state", tmp_path / "state-new"
    other.write_bytes(b"of another process")
    replace_file(path, b"new", temporary=tmp_path / ".mine")
    assert path.read_bytes() == b"new"
    assert other.read_bytes() == b"of another process"
    assert sorted(os.listdir(tmp_path)) == ["state", "state-new"]


def test_a_file_written_in_place_is_truncated(tmp_path: Path) -> None:
    path = tmp_path / "state"
    path.write_bytes(b"longer than before")
    write_file(path, "new")
    assert path.read_bytes() == b"new"
