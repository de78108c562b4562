"""Generated packages for tests: schemas to an importable package in a folder."""

from __future__ import annotations

import importlib
import itertools
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType

from producer_sdk._generator import generate, write

_NUMBER = itertools.count()


def environment(folder: Path) -> dict[str, str]:
    """The environment of a program whose own modules lie in `folder`."""
    path = filter(None, (str(folder), os.environ.get("PYTHONPATH")))
    return {**os.environ, "PYTHONPATH": os.pathsep.join(path)}


def build(folder: Path, texts: Mapping[str, str]) -> dict[str, ModuleType]:
    """Generate the classes of schema texts (by file name); the modules by name."""
    number = next(_NUMBER)
    schemas = folder / f"schemas{number}"
    schemas.mkdir(parents=True)
    for name, text in texts.items():
        (schemas / name).write_text(text, encoding="utf-8")
    package = f"generated_{number}"
    files = generate([schemas])
    write(files, folder / package)
    sys.path.insert(0, str(folder))
    try:
        importlib.invalidate_caches()
        return {
            Path(name).stem: importlib.import_module(f"{package}.{Path(name).stem}")
            for name in files
            if name != "__init__.py"
        }
    finally:
        sys.path.remove(str(folder))
