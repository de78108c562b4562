"""The audit: completeness of every topic and window at every tier, from the reconciler's store.

Rules: the store is opened, never made, and what it takes to open one (SQLAlchemy, a third of the
console's start) is imported when there is one; it is asked again only when it has changed; what is
kept is bounded (the worst topics first), and it says how much is left out.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from headworks._audit.results import Explanation, Health, Holes, TopicAudit
from headworks.errors import UnreachableError

if TYPE_CHECKING:
    from headworks._audit.findings import Finding
    from headworks._audit.store import AuditStore

__all__ = ["WINDOWS", "AuditReader", "Audited"]

WINDOWS = 36
_MOST_TOPICS = 2_000
_MOST_TIERS = 8
_PRODUCER = "producer"
_TOO_OLD = 60.0
_IN_A_FILE = "sqlite:///"


@dataclass(frozen=True, slots=True)
class Audited:
    """What the store says; `kept` is False where nobody keeps one.

    `troubles` are what is wrong beside the windows of `health`, by the default thresholds.
    """

    kept: bool
    health: Mapping[str, Health]
    holes: Holes
    troubles: tuple[Finding, ...] = ()


_NOTHING = Audited(False, {}, Holes(0, 0))


class AuditReader:
    """Reads the store at a URL; safe to share between threads."""

    def __init__(self, url: str, *, now: Callable[[], float] = time.time) -> None:
        self._url = url
        self._now = now
        self._store: AuditStore | None = None
        self._last: tuple[int, float, Audited] | None = None

    def __call__(self) -> Audited:
        """Read now; UnreachableError if the database does not answer."""
        store = self._opened()
        if store is None:
            return _NOTHING
        with _asking():
            revision, now = store.revision(), self._now()
            last = self._last
            if last is not None and last[0] == revision and now - last[1] < _TOO_OLD:
                return last[2]
            found = _read(store, round(now * 1000))
        self._last = revision, now, found
        return found

    def topic(self, topic: str) -> TopicAudit | None:
        """One topic, window by window; None where nobody keeps a store."""
        store = self._opened()
        if store is None:
            return None
        from headworks._audit import queries

        with _asking():
            return queries.topic_audit(store, topic, now=round(self._now() * 1000))

    def explain(self, topic: str, window_start: int) -> Explanation | None:
        """Who counted what of a window; None where nobody keeps a store."""
        store = self._opened()
        if store is None:
            return None
        from headworks._audit import queries

        with _asking():
            return queries.explain(store, topic, window_start)

    def producers(self, topic: str) -> list[str]:
        """The applications that sent what is in the topic's newest window."""
        store = self._opened()
        if store is None:
            return []
        from headworks._audit import queries

        with _asking():
            now = round(self._now() * 1000)
            windows = queries.topic_audit(store, topic, now=now, windows=1).windows
            found = queries.explain(store, topic, windows[-1]).contributions if windows else ()
        return sorted({one.application for one in found if one.tier == _PRODUCER})

    def _opened(self) -> AuditStore | None:
        if self._store is None:
            file = _file_of(self._url)
            if file is not None and not file.exists():
                return None
            from headworks._audit.store import AuditStore

            self._store = AuditStore(self._url)
        return self._store


def _read(store: AuditStore, now: int) -> Audited:
    from headworks._audit import queries
    from headworks._audit.findings import Thresholds, troubles

    names = [one.tier for one in queries.tiers(store) if one.tier != _PRODUCER][:_MOST_TIERS]
    health = {
        tier: queries.health(store, now=now, tier=tier, windows=WINDOWS, limit=_MOST_TOPICS)
        for tier in names or ["hadoop"]
    }
    seen = tuple(troubles(store, now, Thresholds()))
    return Audited(True, health, queries.holes(store), seen)


@contextmanager
def _asking() -> Iterator[None]:
    """A database that does not answer is an UnreachableError."""
    from sqlalchemy.exc import SQLAlchemyError

    try:
        yield
    except SQLAlchemyError as error:
        raise UnreachableError(
            f"the audit's store does not answer: {error.__cause__ or error}",
            fix="see to the database that the setting audit_store names",
        ) from None


def _file_of(url: str) -> Path | None:
    """The file of a SQLite store; None for another database."""
    if not url.startswith(_IN_A_FILE):
        return None
    return Path(url.removeprefix(_IN_A_FILE).partition("?")[0])
