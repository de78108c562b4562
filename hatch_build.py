"""The build hook: it compiles the C extensions (SOURCES) if there is a compiler.

Every `pip install` runs it. In a checkout with an editable installation, `python hatch_build.py`
builds in place.

Rules:

- It uses the interpreter's own compiler and flags, and nothing else.
- An installation never fails for want of a compiler. The hook prints the reason, and Python
  encodes, decodes, and counts instead, with the same result.
- It builds all extensions or none (`headworks._native`). HEADWORKS_PURE=1 asks for none.
- Each extension contains the digest of its source, so that tests/test_packaging.py recognizes one
  of an older source.
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
_NAMES = ("_decoder", "_encoder", "_messages", "_rows", "_tally")
SOURCES = tuple(Path(f"headworks/_native/{name}.c") for name in _NAMES)


class CustomBuildHook(BuildHookInterface):  # type: ignore[type-arg]
    """Adds the compiled extensions to a wheel, which is then one of this platform."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compile before the files are collected; in place for an editable installation."""
        if version == "editable":
            build(ROOT)
            return
        self._folder = tempfile.TemporaryDirectory()  # removed with this object
        folder = Path(self._folder.name)
        for built in build(folder):
            build_data["pure_python"] = False
            build_data["infer_tag"] = True
            build_data["force_include"][str(built)] = str(built.relative_to(folder))


def build(root: Path) -> list[Path]:
    """Compile all extensions into their folders below `root`; return their paths.

    Return none, and print the reason to stderr, if one of them cannot be compiled.
    """
    suffix = sysconfig.get_config_var("EXT_SUFFIX")
    targets = {root / source.with_name(source.stem + suffix): source for source in SOURCES}
    try:
        _remove(targets)  # an extension of an older source must not stay
        why = _obstacle() or _compile_all(targets)
        if why is not None:
            _remove(targets)
    except OSError as error:
        why = f"{error.filename}: {error.strerror}"
    if why is None:
        return list(targets)
    print(
        f"headworks: the C extensions were not built ({why}). Python encodes, decodes, and "
        "counts events, with the same result but more slowly. fix: install gcc and Python's "
        "headers, and then install headworks again.",
        file=sys.stderr,
    )
    return []


def _remove(targets: Iterable[Path]) -> None:
    for target in targets:
        target.unlink(missing_ok=True)


def _obstacle() -> str | None:
    if os.environ.get("HEADWORKS_PURE"):
        return "HEADWORKS_PURE is set"
    if sys.implementation.name != "cpython":
        return f"they need CPython, not {sys.implementation.name}"
    if sysconfig.get_config_var("Py_GIL_DISABLED"):
        return "they need a Python with a global interpreter lock"
    if not sysconfig.get_config_var("LDSHARED"):
        return "this Python does not name its compiler"
    if not (Path(sysconfig.get_path("include")) / "Python.h").is_file():
        return "Python.h is missing"
    return None


def _compile_all(targets: Mapping[Path, Path]) -> str | None:
    """Compile each; return the reason of the first failure, or None."""
    return next(filter(None, (_compile(*each) for each in targets.items())), None)


def _compile(target: Path, source: Path) -> str | None:
    """Compile one; return the reason of a failure, or None. Never leave a partial file."""
    target.parent.mkdir(parents=True, exist_ok=True)
    half = target.with_suffix(".half")
    done = subprocess.run(command(half, source), capture_output=True, text=True, check=False)
    if done.returncode:
        half.unlink(missing_ok=True)
        errors = (line for line in done.stderr.splitlines() if "error" in line)
        return next(errors, f"the compiler exited with {done.returncode}")
    os.replace(half, target)
    return None


def command(target: Path, source: Path, *more: str) -> list[str]:
    """Return the compiler's command line for one of SOURCES, with `more` options."""
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
