"""The folder of Headworks' own event schemas: `schemas/` in a checkout, `_schemas/` in a wheel."""

from __future__ import annotations

from pathlib import Path


def folder() -> Path:
    """Return the folder of the schemas that came with this installation."""
    packaged = Path(__file__).parent / "_schemas"
    return packaged if packaged.is_dir() else Path(__file__).parent.parent / "schemas"
