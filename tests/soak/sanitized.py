"""The C extensions under AddressSanitizer and UndefinedBehaviorSanitizer: tests, then fuzzing.

The sources of this checkout are copied and compiled with both sanitizers, so that the checkout
keeps its own extensions. A report of a sanitizer ends its process, and is a fault of this run.
Leaks are not reported, because the interpreter itself leaves memory to its end.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
import sysconfig
import time
from pathlib import Path
from typing import Any

from tests.soak.siege import Report

_ROOT = Path(__file__).resolve().parents[2]
_OPTIONS = (
    "-O1",
    "-g",
    "-fno-omit-frame-pointer",
    "-fsanitize=address,undefined",
    "-fno-sanitize-recover=all",
)
_TESTS = (
    "tests/headworks/codec",
    "tests/headworks/decoding",
    "tests/headworks/audit_counting",
    "tests/consumer_sdk/test_compiled_messages.py",
    "tests/consumer_sdk/test_message_step.py",
    "tests/consumer_sdk/test_decoding.py",
    "tests/hadoop_loader/test_decode.py",
    "tests/hadoop_loader/test_row_numbers.py",
)
_LINES = 60  # of a process that failed


def fuzz_sanitized(folder: Path, seconds: float, seed: int) -> Report:
    """Run the tests of the extensions once, and then fuzz the codec for so many seconds."""
    report, began = Report(), time.monotonic()
    tree = folder / "tree"
    _copy_sources(tree)
    _compile(tree)
    minutes = str(seconds / 60 / 2)
    for command in (
        ["tests.headworks.decoding.guard_pages", str(seed), "200"],
        ["pytest", "-q", "-p", "no:cacheprovider", *_TESTS],
        ["tests.soak", "decoders", "--seed", str(seed), "--minutes", minutes],
        ["tests.soak", "codec", "--seed", str(seed), "--minutes", minutes],
    ):
        done = subprocess.run(
            [sys.executable, "-m", *command],
            cwd=tree,
            env=_environment(tree),
            capture_output=True,
            text=True,
            check=False,
        )
        output = done.stdout + done.stderr
        print(f"{' '.join(command[:2])}: {done.stdout.strip()[-200:]}", flush=True)
        report.counts["runs"] += 1
        if done.returncode:
            report.wrong.append(f"{command}: {done.returncode}\n" + _end_of(output))
    report.seconds = time.monotonic() - began
    return report


def _copy_sources(tree: Path) -> None:
    """Copy what git tracks, and what it would: a change need not be committed to be proven."""
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=_ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    for name in filter(None, listed.stdout.split("\0")):
        source = _ROOT / name
        if source.is_symlink() or source.is_file():
            (tree / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(source, tree / name, follow_symlinks=False)


def _compile(tree: Path) -> None:
    hook: Any = _hook()
    for source in hook.SOURCES:
        target = tree / source.with_name(source.stem + sysconfig.get_config_var("EXT_SUFFIX"))
        subprocess.run(hook.command(target, source, *_OPTIONS), check=True)


def _hook() -> Any:
    spec = importlib.util.spec_from_file_location("hatch_build", _ROOT / "hatch_build.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _environment(tree: Path) -> dict[str, str]:
    runtime = subprocess.run(
        ["gcc", "-print-file-name=libasan.so"], capture_output=True, text=True, check=True
    )
    return {
        **os.environ,
        "LD_PRELOAD": runtime.stdout.strip(),
        "PYTHONPATH": str(tree),
        "PYTHONMALLOC": "malloc",  # so that each object has its own red zones
        "ASAN_OPTIONS": "detect_leaks=0:handle_segv=0",  # a test expects the signal itself
        "UBSAN_OPTIONS": "halt_on_error=1:print_stacktrace=1",
    }


def _end_of(output: str) -> str:
    return "\n".join(output.splitlines()[-_LINES:])
