"""The build hook: compiles headworks/codec/_encoder.c where there is a compiler.

`pip install` of any kind runs it. `python hatch_build.py` builds in place, for who works on a
checkout that is installed as editable.

Rules: with the interpreter's own compiler and flags, and nothing else; an installation never fails
for want of them: it says so, and Python encodes, to the same bytes. The digest of the source is
compiled in, so that what is left of an older source can be told (tests/kernel/test_packaging.py).
"""

from __future__ import annotations

import hashlib
import os
import shlex
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

ROOT = Path(__file__).resolve().parent
SOURCE = ROOT / "headworks" / "codec" / "_encoder.c"


class CustomBuildHook(BuildHookInterface):  # type: ignore[type-arg]
    """Adds the compiled encoder to a wheel, which then is one of this platform."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compile before the files are collected: in place for an editable installation."""
        if version == "editable":
            build(SOURCE.parent)
            return
        self._folder = tempfile.TemporaryDirectory()  # which goes with this object
        built = build(Path(self._folder.name))
        if built is not None:
            build_data["pure_python"] = False
            build_data["infer_tag"] = True
            build_data["force_include"][str(built)] = f"headworks/codec/{built.name}"


def build(folder: Path) -> Path | None:
    """Compile the encoder into `folder`; None, and a word on stderr, if that cannot be done."""
    target = folder / f"_encoder{sysconfig.get_config_var('EXT_SUFFIX')}"
    try:
        target.unlink(missing_ok=True)  # nothing of an older source stays
        why = _obstacle() or _compile(target)
    except OSError as error:
        why = f"{error.filename}: {error.strerror}"
    if why is None:
        return target
    print(
        f"headworks: the compiled encoder is left out ({why}); events are encoded by Python: the "
        "same bytes, more slowly. To have it, install gcc and Python's headers, then headworks "
        "again.",
        file=sys.stderr,
    )
    return None


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


def _compile(target: Path) -> str | None:
    """Why it failed, or None. Never half a file in its place."""
    half = target.with_suffix(".half")
    done = subprocess.run(command(half), capture_output=True, text=True, check=False)
    if done.returncode:
        half.unlink(missing_ok=True)
        told = (line for line in done.stderr.splitlines() if "error" in line)
        return next(told, f"the compiler ended with {done.returncode}")
    os.replace(half, target)
    return None


def command(target: Path, *more: str) -> list[str]:
    """The compiler's command line, with `more` options."""
    words = [
        str(sysconfig.get_config_var(name) or "") for name in ("LDSHARED", "CFLAGS", "CCSHARED")
    ]
    return [
        *(word for text in words for word in shlex.split(text)),
        "-g0",
        *more,
        f"-I{sysconfig.get_path('include')}",
        f'-DHEADWORKS_SOURCE="{hashlib.sha256(SOURCE.read_bytes()).hexdigest()}"',
        str(SOURCE),
        "-o",
        str(target),
    ]


if __name__ == "__main__":
    built = build(SOURCE.parent)
    if built is None:
        sys.exit(1)
    print(built.relative_to(ROOT))
