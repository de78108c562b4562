"""The shares in which workers rewrite test modules, and what they leave for each other."""

from __future__ import annotations

from pathlib import Path

import pytest
from _pytest.assertion import rewrite

from tests.rewriting import modules_named, rewrite_share, share_of

pytestmark = pytest.mark.unit


@pytest.fixture
def modules(tmp_path: Path) -> list[Path]:
    """Test modules of several sizes, one of them wrong."""
    found = []
    for n in range(7):
        found.append(tmp_path / f"test_{n}.py")
        found[-1].write_text("assert 1 + 1 == 2\n" * n)
    found[3].write_text("assert (")
    (tmp_path / "helper.py").write_text("assert 1 + 1 == 2\n")
    return found


def kept(folder: Path) -> dict[str, int]:
    """The kept results, and when each was written."""
    return {
        path.name.partition(".")[0]: path.stat().st_mtime_ns
        for path in (folder / "__pycache__").glob(f"*{rewrite.PYC_TAIL}")
    }


def test_shares_are_of_all_modules_and_cost_alike(modules: list[Path]) -> None:
    shares = [share_of(modules, number, 3) for number in range(3)]
    assert sorted(path for share in shares for path in share) == modules
    assert [len(share) for share in shares] == [3, 2, 2]
    assert modules[6] == shares[0][0]


def test_modules_are_named_by_file_folder_or_test(tmp_path: Path, modules: list[Path]) -> None:
    assert modules_named(tmp_path, ["."]) == modules_named(tmp_path, [str(tmp_path)])
    assert modules_named(tmp_path, ["."]) == set(modules)
    assert modules_named(tmp_path, ["test_1.py::test_a[x/y]", "test_2.py"]) == set(modules[1:3])
    assert modules_named(tmp_path, ["gone.py", "gone"]) == set()


def test_each_module_is_rewritten_once(
    tmp_path: Path,
    modules: list[Path],
    pytestconfig: pytest.Config,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(pytestconfig, "args", [str(tmp_path)])
    monkeypatch.setattr("sys.dont_write_bytecode", False)
    rewrite_share(pytestconfig, 1, 2)
    before = kept(tmp_path)
    assert set(before) == {path.stem for path in share_of(modules, 1, 2)} - {"test_3"}
    for number in range(2):
        rewrite_share(pytestconfig, number, 2)
    after = kept(tmp_path)
    assert set(after) == {f"test_{n}" for n in range(7) if n != 3}, "a wrong one is for pytest"
    assert {name: after[name] for name in before} == before
