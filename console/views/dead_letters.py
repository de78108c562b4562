"""The dead letters of a topic by group and exception, and what a redrive did. Pure.

Rules: groups that the reader may not see are left out. A kind can be redriven if it names its
exception class, because the selection would hold other letters otherwise.
"""

from __future__ import annotations

from dataclasses import dataclass

from headworks._console.sources.dead_letters import LetterCounts
from headworks._console.views.visibility import CanSee


@dataclass(frozen=True, slots=True)
class LetterRow:
    """One line; `group` is None for messages that the broker refused."""

    group: str | None
    exception: str | None
    letters: int
    again: int
    newest_ms: int
    redrivable: bool


@dataclass(frozen=True, slots=True)
class RedriveResult:
    """The letters of one redrive: sent by target topic, and left by the reason."""

    sent: tuple[tuple[str, int], ...]
    left: tuple[tuple[str, int], ...]


@dataclass(frozen=True, slots=True)
class DeadLetterPage:
    """The page of a topic's dead letters.

    `writes` says whether the reader may redrive them. `limit` is how many one redrive sends.
    """

    topic: str
    source: str
    rows: tuple[LetterRow, ...]
    whole: bool
    hidden: bool
    writes: bool
    limit: int
    result: RedriveResult | None = None


def letter_rows(counts: LetterCounts, sees: CanSee) -> tuple[tuple[LetterRow, ...], bool]:
    """Return the lines that a reader may see, and whether there are others."""
    rows = [
        LetterRow(
            kind.group or None,
            kind.exception,
            kind.letters,
            kind.again,
            kind.newest_ms,
            redrivable=kind.exception is not None,
        )
        for kind in counts.kinds
        if not kind.group or sees.group(kind.group)
    ]
    return tuple(rows), len(rows) < len(counts.kinds)
