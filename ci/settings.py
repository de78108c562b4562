"""The `[gate]` table of headworks.toml: what `headworks schema check` does without flags.

[gate]
against = ["git:origin/main", "registry"]
bootstrap = "broker.example.org:9092"
usage = "http://console.example.org:8090"
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from headworks._toml_text import read_toml
from headworks.errors import UsageError


@dataclass(frozen=True, slots=True)
class GateSettings:
    """The baselines of a check, the broker whose groups are listed, and the console, if any."""

    against: tuple[str, ...] = ()
    bootstrap: str | None = None
    usage: str | None = None


def read_settings(path: Path) -> GateSettings:
    """Read the table; without the file or the table, nothing is set."""
    table = (read_toml(path) or {}).get("gate", {})
    known = isinstance(table, dict) and not set(table) - {"against", "bootstrap", "usage"}
    against = table.get("against", []) if known else None
    bootstrap, usage = (table.get(name) if known else None for name in ("bootstrap", "usage"))
    listed = isinstance(against, list) and all(isinstance(one, str) for one in against)
    texts = isinstance(bootstrap, str | None) and isinstance(usage, str | None)
    if not listed or not texts or not known:
        raise UsageError(
            f"{path}: [gate] takes a list `against`, and the texts `bootstrap` and `usage`",
            fix='against = ["git:origin/main"]',
        )
    return GateSettings(tuple(against or ()), bootstrap, usage)
