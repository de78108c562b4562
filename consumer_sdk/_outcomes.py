"""The end of a message: handled, skipped, put off, or dead, and counted as such in the audit.

Rules: each message ends once, and counts under one outcome. So for each topic, the messages that
arrived are those handled, skipped, dead, and retried. A message is written to another topic before
it counts. Handlers beside each other end messages from several threads, also while one is written.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass

import confluent_kafka

from consumer_sdk._audit_tier import AuditTier
from consumer_sdk._group_config import GroupConfig
from consumer_sdk._membership import Membership
from consumer_sdk._poison import OnPoison, stopped_at
from headworks._audit_counting.outcomes import CONSUMED, DEAD, OUTCOMES, RETRIED, SKIPPED
from headworks.errors import HeadworksError

_ENDS = (CONSUMED, SKIPPED, DEAD, RETRIED)
_SKIPS = (DEAD, SKIPPED)


@dataclass(frozen=True, slots=True)
class Ending:
    """How a message ends: `outcome` is an index of OUTCOMES, and the rest is for some of them."""

    outcome: int = CONSUMED
    reason: str = ""  # of a dead letter, and the class of the error behind it
    exception: str | None = None
    delay: int = 0  # seconds by which a message is put off, for the `count`-th time
    count: int = 0

    @property
    def writes(self) -> bool:
        """Whether the message is written to another topic."""
        return self.outcome in (DEAD, RETRIED)

    @property
    def skips(self) -> bool:
        """Whether the group goes on without it."""
        return self.outcome in _SKIPS


HANDLED = Ending()


def no_totals() -> Mapping[str, int]:
    """Return the totals of a consumer that has ended no message."""
    return {OUTCOMES[end]: 0 for end in _ENDS}


class MessageOutcomes:
    """Ends the messages of one stream of a consumer; any thread may."""

    def __init__(self, config: GroupConfig, on_poison: OnPoison, audit: AuditTier | None) -> None:
        self._config, self._on_poison, self._audit = config, on_poison, audit
        self._dead_letters = config.dead_letter_writer()
        self.ended = dict.fromkeys(_ENDS, 0)  # of this stream
        self._counting = threading.Lock()  # never while one is written
        self._streams = [self.ended]

    def copy(self) -> MessageOutcomes:
        """Return the outcomes of another stream."""
        made = MessageOutcomes(self._config, self._on_poison, self._audit)
        self._streams.append(made.ended)
        made._streams = self._streams
        return made

    @property
    def totals(self) -> Mapping[str, int]:
        """The messages of all streams by the name of their outcome."""
        return {OUTCOMES[end]: sum(one[end] for one in self._streams) for end in _ENDS}

    @property
    def skipped(self) -> int:
        """The messages of this stream that the group went on without."""
        return sum(self.ended[end] for end in _SKIPS)

    def end(self, raw: confluent_kafka.Message, group: Membership, outcome: int = CONSUMED) -> None:
        """Count a message, and let the group commit it."""
        with self._counting:
            self.ended[outcome] += 1
            if self._audit is not None:
                self._audit.processed(raw, outcome)
        group.processed(raw)

    def end_as(self, raw: confluent_kafka.Message, group: Membership, ending: Ending) -> None:
        """Write a message where its ending wants it, and end it."""
        if ending.outcome == DEAD:
            self._dead_letters.send(raw, ending.reason, ending.exception)
        elif ending.outcome == RETRIED:
            self._dead_letters.put_off(raw, ending.delay, ending.count, self._audit)
        self.end(raw, group, ending.outcome)

    def of_poison(self, raw: confluent_kafka.Message, error: HeadworksError) -> int:
        """Return the outcome of a message that cannot be decoded, by `on_poison`, or raise."""
        if self._on_poison is OnPoison.STOP:
            raise stopped_at(raw, error) from error
        if self._on_poison is OnPoison.DEAD_LETTER:
            self._dead_letters.send(raw, error.message, type(error).__name__)
            return DEAD
        return SKIPPED
