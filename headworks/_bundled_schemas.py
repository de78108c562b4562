"""Headworks' own event schemas: `schemas/` in a checkout, `headworks/_schemas/` in a wheel."""

from __future__ import annotations

from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path


def folder() -> Path:
    """Return the folder of the schemas that came with this installation."""
    packaged = Path(__file__).parent / "_schemas"
    return packaged if packaged.is_dir() else Path(__file__).parent.parent / "schemas"


def audit_schema() -> str:
    """Return the text of the audit event's schema, also from a zip (`spark-submit --py-files`)."""
    packaged: Traversable = resources.files("headworks") / "_schemas"
    schemas = packaged if packaged.is_dir() else folder()
    return (schemas / "headworks" / "audit.avsc").read_text(encoding="utf-8")
