"""Where Headworks' own event catalogue (`schemas/`) lies: beside the code, or inside the wheel."""

from __future__ import annotations

from pathlib import Path

__all__ = ["folder"]


def folder() -> Path:
    """The folder of the catalogue that came with this installation."""
    packaged = Path(__file__).parent / "catalogue"
    return packaged if packaged.is_dir() else Path(__file__).parent.parent / "schemas"
