"""How `headworks NOUN --help` lists commands: with whole sentences, and the first step first.

Rules: a sentence wraps and is never cut, because its end often says what matters. The order is the
same on each page: commands that start something, then those that show, then those that change.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from typer.core import TyperGroup

if TYPE_CHECKING:
    from collections.abc import Sequence

_FIRST = ("start", "run", "check", "status", "list", "describe", "show", "dump")
_UNLIMITED_CHARACTERS = 10_000


class SentenceGroup(TyperGroup):
    """A group of commands whose help shows a sentence of each."""

    def list_commands(self, ctx: Any) -> list[str]:
        """Return the names of the commands in the order of the help."""
        return in_order(super().list_commands(ctx))

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write the list of the commands."""
        shown = [(name, self.commands[name]) for name in self.list_commands(ctx)]
        rows = [
            (name, one.get_short_help_str(_UNLIMITED_CHARACTERS))
            for name, one in shown
            if not one.hidden
        ]
        if rows:
            with formatter.section("Commands"):
                formatter.write_dl(rows)


def in_order(names: Sequence[str]) -> list[str]:
    """Return the names with those of _FIRST at the front."""
    return sorted(names, key=lambda name: _FIRST.index(name) if name in _FIRST else len(_FIRST))
