"""How much work one question may cost, however many versions it is about.

Rules: what is asked of one pair of schemas is bounded by MAX_WORK, and what is asked of all
versions together by MAX_TOTAL_WORK: beyond it the question is refused, never answered in part.
Guesses are only for better advice: when they are used up, the advice is plainer.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from headworks.errors import UsageError

__all__ = ["MAX_FINDINGS", "MAX_PAIR_STEPS", "MAX_TOTAL_STEPS", "Budget"]

MAX_PAIR_STEPS: Final = 2_000_000
MAX_TOTAL_STEPS: Final = 20_000_000
# Beyond so many, each failing version is still named, by its first finding.
MAX_FINDINGS: Final = 10_000
_MAX_GUESSES: Final = 200


@dataclass(slots=True)
class Budget:
    """What is left for one question."""

    total: int = MAX_TOTAL_STEPS
    pair: int = MAX_PAIR_STEPS
    guesses: int = _MAX_GUESSES

    def next_pair(self) -> None:
        """Begin with another pair of schemas."""
        self.pair = min(MAX_PAIR_STEPS, self.total)

    def spend(self, amount: int) -> None:
        """Pay for steps; UsageError when too many were needed."""
        self.pair -= amount
        self.total -= amount
        if self.pair < 0:
            raise UsageError(
                f"the schemas are too large to compare: more than {MAX_PAIR_STEPS:,} steps for one "
                f"pair, or {MAX_TOTAL_STEPS:,} for all versions",
                fix="split the schema, or shrink its unions",
            )

    def guess(self) -> bool:
        """Whether one more guess may be made."""
        self.guesses -= 1
        return self.guesses >= 0
