"""TOML texts and files. A wrong one is a UsageError that names it, whatever the reason."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

from headworks.errors import UsageError


def read_toml(path: Path) -> dict[str, Any] | None:
    """Return the content of a file, or None if there is no file."""
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return None
    except UnicodeDecodeError as error:
        raise UsageError(f"cannot read {path}: {error}", fix="save the file as UTF-8") from None
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror}") from None
    return parse_toml(text, str(path))


def parse_toml(text: str, name: str) -> dict[str, Any]:
    """Return the content of a text; `name` is that of its file."""
    try:
        return tomllib.loads(text)
    except RecursionError:
        raise UsageError(f"{name} is nested too deeply") from None
    except ValueError as error:  # of the grammar, or a number that is too long
        raise UsageError(f"{name} is not TOML: {error}") from None
