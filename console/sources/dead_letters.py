"""The dead letters of a topic, counted on request, and sent back: the console's one write action.

Rules:

- A page reads a bounded number of letters, and a redrive sends a bounded number. Nothing is read in
  the background.
- One redrive runs at a time. It is that of `headworks dead-letter redrive`: killed, it loses none.
- A letter's reason, key, and value stay here, because they may quote a field that is masked.
"""

from __future__ import annotations

import secrets
import threading
from collections.abc import Iterator
from dataclasses import dataclass

from consumer_sdk._audit_tier import default_state_dir
from consumer_sdk._dead_letters.letter import DeadLetter, letter_of
from consumer_sdk._dead_letters.reading import LetterReader
from consumer_sdk._dead_letters.redrive import Redrive, RedriveOptions, RedriveReport
from consumer_sdk._dead_letters.selection import LetterSelection
from headworks._kafka.client_properties import client_properties
from headworks._kafka.dead_letters import DEAD_LETTER_SUFFIX
from headworks.errors import UsageError

MAX_READ = 20_000  # letters that one page counts
_MAX_KEPT = 100  # reports of redrives, for the pages that show them
MAX_SENT = 1_000  # letters that one press of the button sends
_READER = "headworks-console-dead-letters"


@dataclass(frozen=True, slots=True)
class LetterKind:
    """The letters of one group and exception class; None: the letter names no class.

    `again` are those that were redriven before and died again.
    """

    group: str
    exception: str | None
    letters: int
    again: int
    newest_ms: int


@dataclass(frozen=True, slots=True)
class LetterCounts:
    """The letters of a topic by kind. `whole` is False if there are more than were counted."""

    kinds: tuple[LetterKind, ...]
    whole: bool


class DeadLetterDesk:
    """Counts and redrives the dead letters on the broker at `bootstrap`."""

    def __init__(self, bootstrap: str, registry: str) -> None:
        self._bootstrap, self._registry = bootstrap, registry
        self._running = threading.Lock()
        self._keeping = threading.Lock()
        self._kept: dict[str, tuple[str, RedriveReport]] = {}  # by a random name

    def count(self, topic: str) -> LetterCounts:
        """Return the letters of a topic, the most frequent kind first.

        Raises UnreachableError, and UsageError if the topic has no dead-letter topic.
        """
        found: dict[tuple[str, str | None], LetterKind] = {}
        read = 0
        for letter in self._letters(topic):
            read += 1
            if read > MAX_READ:
                break
            name = letter.group, letter.exception
            before = found.get(name, LetterKind(*name, 0, 0, 0))
            found[name] = LetterKind(
                *name,
                before.letters + 1,
                before.again + (letter.redrives > 0),
                max(before.newest_ms, letter.died_at or letter.timestamp),
            )
        kinds = sorted(found.values(), key=lambda kind: -kind.letters)
        return LetterCounts(tuple(kinds), read <= MAX_READ)

    def redrive(self, topic: str, group: str, exception: str, *, to_group: bool) -> RedriveReport:
        """Send letters of a kind back, to their topic or to their group alone.

        Raises UsageError while another redrive runs, and UnreachableError.
        """
        selection = LetterSelection(topic=topic, group=group, exception=exception)
        options = RedriveOptions(
            source=f"{topic}{DEAD_LETTER_SUFFIX}",
            selection=selection,
            to_group=group if to_group else None,
            maximum=MAX_SENT,
        )
        if not self._running.acquire(blocking=False):
            raise UsageError(
                "another redrive of this console is running", fix="wait a moment, and try again"
            )
        try:
            client = client_properties(self._bootstrap)
            return Redrive(options, client, self._registry, default_state_dir()).run()
        finally:
            self._running.release()

    def keep(self, topic: str, report: RedriveReport) -> str:
        """Keep the report of a redrive for a while, and return the name to read it by."""
        name = secrets.token_urlsafe(16)
        with self._keeping:
            self._kept[name] = topic, report
            while len(self._kept) > _MAX_KEPT:
                del self._kept[next(iter(self._kept))]
        return name

    def kept(self, topic: str, name: str) -> RedriveReport | None:
        """Return a report of this topic that `keep` named, unless too many others followed."""
        of, report = self._kept.get(name, ("", None))
        return report if of == topic else None

    def _letters(self, topic: str) -> Iterator[DeadLetter]:
        source = f"{topic}{DEAD_LETTER_SUFFIX}"
        with LetterReader(client_properties(self._bootstrap), source, _READER) as reader:
            for batch in reader.batches(reader.bounds()):
                found = map(letter_of, batch)
                yield from (one for one in found if one is not None and one.topic == topic)
