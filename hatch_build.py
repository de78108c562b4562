"""The build hook: compiles what is written in C (SOURCES) where there is a compiler.

`pip install` of any kind runs it. `python hatch_build.py` builds in place, for who works on a
checkout that is installed as editable.

Rules: with the interpreter's own compiler and flags, and nothing else; an installation never fails
for want of them: it says so, and Python encodes and counts, to the same bytes. Everything is
compiled or nothing (`headworks._native`). The digest of a source is compiled in, so that what is
left of an older one can be told (tests/test_packaging.py).
"""

from __future__ import annotations

import hashlib
import os
import shlex
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

ROOT = Path(__file__).resolve().parent
SOURCES = (Path("headworks/_native/_encoder.c"), Path("headworks/_native/_tally.c"))


class CustomBuildHook(BuildHookInterface):  # type: ignore[type-arg]
    """Adds what was compiled to a wheel, which then is one of this platform."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compile before the files are collected: in place for an editable installation."""
        if version == "editable":
            build(ROOT)
            return
        self._folder = tempfile.TemporaryDirectory()  # which goes with this object
        folder = Path(self._folder.name)
        for built in build(folder):
            build_data["pure_python"] = False
            build_data["infer_tag"] = True
            build_data["force_include"][str(built)] = str(built.relative_to(folder))


def build(root: Path) -> list[Path]:
    """Compile all into the folders of `root` that they belong to: what was built.

    Nothing, and a word on stderr, if one of them cannot be.
    """
    suffix = sysconfig.get_config_var("EXT_SUFFIX")
    targets = {root / source.with_name(source.stem + suffix): source for source in SOURCES}
    try:
        _remove(targets)  # nothing of an older source stays
        why = _obstacle() or _compile_all(targets)
        if why is not None:
            _remove(targets)
    except OSError as error:
        why = f"{error.filename}: {error.strerror}"
    if why is None:
        return list(targets)
    print(
        f"headworks: the compiled parts are left out ({why}); events are encoded and counted by "
        "Python: the same bytes, more slowly. To have them, install gcc and Python's headers, then "
        "headworks again.",
        file=sys.stderr,
    )
    return []


def _remove(targets: Iterable[Path]) -> None:
    for target in targets:
        target.unlink(missing_ok=True)


def _obstacle() -> str | None:
    if sys.implementation.name != "cpython":
        return f"it is made for CPython, not for {sys.implementation.name}"
    if sysconfig.get_config_var("Py_GIL_DISABLED"):
        return "it needs a Python with a global interpreter lock"
    if not sysconfig.get_config_var("LDSHARED"):
        return "this Python does not say how extensions are compiled"
    if not (Path(sysconfig.get_path("include")) / "Python.h").is_file():
        return "Python.h is not there"
    return None


def _compile_all(targets: Mapping[Path, Path]) -> str | None:
    """Why one failed, or None."""
    return next(filter(None, (_compile(*each) for each in targets.items())), None)


def _compile(target: Path, source: Path) -> str | None:
    """Why it failed, or None. Never half a file in its place."""
    target.parent.mkdir(parents=True, exist_ok=True)
    half = target.with_suffix(".half")
    done = subprocess.run(command(half, source), capture_output=True, text=True, check=False)
    if done.returncode:
        half.unlink(missing_ok=True)
        told = (line for line in done.stderr.splitlines() if "error" in line)
        return next(told, f"the compiler ended with {done.returncode}")
    os.replace(half, target)
    return None


def command(target: Path, source: Path, *more: str) -> list[str]:
    """The compiler's command line for one of SOURCES, with `more` options."""
    code = ROOT / source
    words = [
        str(sysconfig.get_config_var(name) or "") for name in ("LDSHARED", "CFLAGS", "CCSHARED")
    ]
    return [
        *(word for text in words for word in shlex.split(text)),
        "-g0",
        *more,
        f"-I{sysconfig.get_path('include')}",
        f'-DHEADWORKS_SOURCE="{hashlib.sha256(code.read_bytes()).hexdigest()}"',
        str(code),
        "-o",
        str(target),
    ]


if __name__ == "__main__":
    built = build(ROOT)
    for each in built:
        print(each.relative_to(ROOT))
    sys.exit(0 if built else 1)
