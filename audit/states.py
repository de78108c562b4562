"""The states of messages: one function from counts to states, and the sentence that defines each.

The console, the commands, the metrics, the findings, and the webhook all speak from here. Rules:

- Pure. The function takes integers, or columns of the store: the database then computes the same.
- It is applied to one topic, window, and tier. States of several windows are summed, so a loss in
  one window never cancels out a surplus in another.
- Messages are lost only if they can no longer arrive: the tier has passed the place in the log
  where they must be.
- Nothing is called duplicated here. Counts alone cannot prove it (`proof` can).

For every window: attempted = delivered + failed + dropped + unresolved as the producers report
them, and attempted + surplus = loaded + quarantined + waiting + lost + failed + dropped +
unresolved as the states have them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

DEFINITIONS: Final[Mapping[str, str]] = {
    "attempted": "Producers passed these messages to `send`.",
    "delivered": "The broker acknowledged these messages to their producers.",
    "loaded": "These messages are at the tier as rows, consumed events, or mirrored messages.",
    "quarantined": "These messages are at the tier, but their values could not be decoded.",
    "waiting": "These messages were delivered, and the tier has not read so far yet.",
    "late": "These messages were loaded more than an hour after their window ended.",
    "failed": "The producer gave these messages up with an error, and they did not arrive.",
    "dropped": "The producer dropped these messages before it sent them, as it was configured to.",
    "unresolved": "No producer has reported an outcome of these messages, and they did not arrive.",
    "lost": "These messages were delivered, the tier has passed their place, and they are missing.",
    "surplus": "These messages are at the tier, and no producer has reported them.",
    "duplicated": "These messages are at the tier more than once, which their offsets prove.",
}
"""Each state, and the sentence that defines it."""

ARRIVED: Final = (
    "This is the share that arrived of the messages whose fate is known: not those that wait, "
    "or have no outcome yet."
)

# The counts that the function takes: of the producers, and of the tier.
PRODUCER_COUNTS: Final = ("attempted", "delivered", "failed", "dropped", "unresolved", "passed")
TIER_COUNTS: Final = ("accounted", "quarantined", "late")


def states_of(counts: Mapping[str, Any], positive: Callable[[Any], Any]) -> dict[str, Any]:
    """Return every state of one window, `abandoned`, and `in_flight`, by name.

    `counts` has the names of PRODUCER_COUNTS and TIER_COUNTS. `passed` of the delivered and
    unresolved messages are at offsets that the tier has passed. `positive` returns its argument,
    or 0 if that is negative. Of the unresolved messages, `abandoned` ones can no longer arrive, and
    `in_flight` ones have no outcome yet, whether they arrived or not.
    """
    attempted, delivered = counts["attempted"], counts["delivered"]
    dropped, arrived = counts["dropped"], counts["accounted"]
    undecided = positive(attempted - delivered - counts["failed"] - dropped)
    # The tier passed some messages, and some of them may be unresolved ones that never arrived.
    lost = positive(counts["passed"] - counts["unresolved"] - arrived)
    beyond = positive(arrived - delivered)
    unresolved = positive(undecided - beyond)
    abandoned = positive(counts["passed"] - arrived) - lost
    return {
        "attempted": attempted,
        "delivered": delivered,
        "loaded": arrived - counts["quarantined"],
        "quarantined": counts["quarantined"],
        "waiting": positive(delivered - arrived) - lost,
        "late": counts["late"],
        # A failed message may have arrived all the same, and so may an unresolved one.
        "failed": positive(counts["failed"] - positive(beyond - undecided)),
        "dropped": dropped,
        "unresolved": unresolved,
        "lost": lost,
        "surplus": positive(arrived - attempted + dropped),
        "duplicated": 0,
        "abandoned": unresolved - positive(unresolved - abandoned),
        "in_flight": attempted - delivered - counts["failed"] - dropped - counts["unresolved"],
    }


def sentence(found: Any) -> str:
    """Return the states of a balance as words: "410 attempted, 10 loaded, 400 dropped"."""
    told = [(state, getattr(found, state)) for state in DEFINITIONS]
    return ", ".join(f"{n:,} {state}" for state, n in told if n or state == "attempted")
