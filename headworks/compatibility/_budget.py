"""The work that one question may cost, however many versions it is about.

Rules: MAX_PAIR_STEPS bounds one pair of schemas, and MAX_TOTAL_STEPS all versions together. A
question beyond them is refused, never answered in part. Guesses only improve the advice: when they
are used up, the advice is plainer.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from headworks.errors import UsageError

MAX_PAIR_STEPS: Final = 2_000_000
MAX_TOTAL_STEPS: Final = 20_000_000
# Beyond this many, each failing version still has its first finding.
MAX_FINDINGS: Final = 10_000
_MAX_GUESSES: Final = 200


@dataclass(slots=True)
class Budget:
    """The steps and guesses left for one question."""

    total: int = MAX_TOTAL_STEPS  # steps for all pairs
    pair: int = MAX_PAIR_STEPS  # steps for this pair
    guesses: int = _MAX_GUESSES  # renames that may still be guessed

    def next_pair(self) -> None:
        """Start another pair of schemas."""
        self.pair = min(MAX_PAIR_STEPS, self.total)

    def spend(self, amount: int) -> None:
        """Spend steps; UsageError if too many were needed."""
        self.pair -= amount
        self.total -= amount
        if self.pair < 0:
            raise UsageError(
                f"the schemas are too large to compare: more than {MAX_PAIR_STEPS:,} steps for one "
                f"pair, or {MAX_TOTAL_STEPS:,} for all versions",
                fix="split the schema, or shrink its unions",
            )

    def guess(self) -> bool:
        """Return whether one more guess is allowed, and spend it."""
        self.guesses -= 1
        return self.guesses >= 0
