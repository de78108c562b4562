"""Rewrites the assertions of the test modules once for all workers of a run.

pytest rewrites each test module and keeps the result beside it. Workers that start together in a
new checkout find nothing kept. Each would rewrite every module, which costs it more than to import
all of them. So each worker first rewrites a share of the modules, and then finds the other shares.

Rule: a worker collects as it would without this. It only finds more kept results.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

import pytest
from _pytest.assertion import rewrite


def rewrite_share(config: pytest.Config, number: int, workers: int) -> None:
    """Rewrite the modules of worker `number` (from 0) that have no kept result."""
    if sys.dont_write_bytecode:
        return
    for path in share_of(modules_named(config.rootpath, config.args), number, workers):
        with suppress(SyntaxError, OSError):  # the collection reports it
            _rewrite(path, config)


def modules_named(root: Path, arguments: Iterable[str]) -> set[Path]:
    """Return the test modules that these arguments of pytest name, by file, folder, or test."""
    named = [root / argument.partition("::")[0] for argument in arguments]
    return {
        module
        for path in named
        for module in ([path] if path.suffix == ".py" else path.rglob("test_*.py"))
        if module.is_file()
    }


def share_of(modules: Iterable[Path], number: int, workers: int) -> list[Path]:
    """Return every n-th module, from the largest to the smallest, so that all shares cost alike."""
    return sorted(modules, key=lambda path: (-path.stat().st_size, path))[number::workers]


def _rewrite(path: Path, config: pytest.Config) -> None:
    """Do what pytest's import hook does before it runs a module."""
    folder = rewrite.get_cache_dir(path)
    kept = folder / (path.stem + rewrite.PYC_TAIL)
    if rewrite.try_makedirs(folder) and rewrite._read_pyc(path, kept) is None:
        source_hash, code = rewrite._rewrite_test(path, config)
        rewrite._write_pyc(config.stash[rewrite.assertstate_key], code, source_hash, kept)
