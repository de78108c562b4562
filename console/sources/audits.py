"""The audit: completeness of every topic and window at every tier, from the reconciler's store.

Rules:

- The store is opened and never created. SQLAlchemy, a third of the console's start-up time, is
  imported only if there is a store.
- The store is checked by its seal, because pages wait for that. The reconciler checks each row.
- The store is read again only after it has changed.
- A snapshot is bounded: it has the worst topics, and the number of topics left out.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING

from headworks._audit.judged_sums import SettledSums
from headworks._audit.results import Contribution, Explanation, Health, Holes, TopicAudit
from headworks.errors import UnreachableError

if TYPE_CHECKING:
    from headworks._audit.findings import AuditFinding
    from headworks._audit.store import AuditStore
    from headworks._audit.store.samples import SampleKind, SampleSeries
    from headworks._audit.thresholds import Thresholds
    from headworks._audit.usage import CountedUse, SubjectUsage
    from headworks._audit.usage_reader import AskReaders
    from headworks.registry_client import RegistryClient, SubjectVersion

WINDOWS = 36
_MAX_TOPICS = 2_000
_MAX_TIERS = 8
_PRODUCER = "producer"
_LINEAGE_WINDOWS = 12  # two hours
_MAX_AGE_SECONDS = 60.0
_OPENING_SECONDS = 5.0  # that a page waits while the store is being checked
_SQLITE_PREFIX = "sqlite:///"


@dataclass(frozen=True, slots=True)
class AuditSnapshot:
    """The state of the store; `thresholds` is None if no reconciler keeps one.

    `findings` are those of the reconciler: on the page and in an alert is the same.
    """

    thresholds: Thresholds | None
    health: Mapping[str, Health]
    holes: Holes
    findings: tuple[AuditFinding, ...] = ()
    checked_at: int | None = None  # when the reconciler last checked the store, in ms
    loader_lags: Mapping[str, int] = field(default_factory=dict)  # messages by topic
    # By tier: the sums of each row of its health.
    settled: Mapping[str, tuple[SettledSums, ...]] = field(default_factory=dict)

    @property
    def patience_ms(self) -> int:
        """The time after the end of a window until it is judged."""
        return _patience_ms(self.thresholds)


_NO_STORE = AuditSnapshot(None, {}, Holes(0, 0))


class AuditReader:
    """Reads the store at a URL; safe to share between threads."""

    def __init__(self, url: str, *, now: Callable[[], float] = time.time) -> None:
        self._url = url
        self._now = now
        self._store: AuditStore | None = None  # None until there is one to open
        self._opening = Lock()  # the thread that opens a store checks all of it
        # The store's revision, the time, and the snapshot of the last read.
        self._last: tuple[int, float, AuditSnapshot] | None = None

    def __call__(self) -> AuditSnapshot:
        """Read the store. Raises UnreachableError if the database does not answer."""
        store = self._opened()
        if store is None:
            return _NO_STORE
        with _database_errors():
            revision, now = store.revision(), self._now()
            last = self._last
            if last is not None and last[0] == revision and now - last[1] < _MAX_AGE_SECONDS:
                return last[2]
            found = _read(store, round(now * 1000))
        self._last = revision, now, found
        return found

    def usage(
        self,
        registry: RegistryClient,
        subject: str,
        history: Sequence[SubjectVersion],
        ask_readers: AskReaders | None,
        *,
        fingerprints: bool,
    ) -> SubjectUsage | None:
        """Return who uses which version of a subject's history, or None without a store.

        To parse a long history for its `fingerprints` takes seconds.
        """
        store = self._opened()
        if store is None:
            return None
        from headworks._audit.store.evidence import read_until
        from headworks._audit.usage_reader import read_usage

        with _database_errors():
            # Without a reconciler that keeps it, nobody knows how old the store is.
            as_of = read_until(store)
            return read_usage(
                store,
                registry,
                subject,
                ask_readers,
                history=history,
                as_of=as_of,
                fingerprints=fingerprints,
            )

    def topic(self, topic: str) -> TopicAudit | None:
        """Return one topic, window by window, or None without a store."""
        store = self._opened()
        if store is None:
            return None
        from headworks._audit import queries

        with _database_errors():
            return queries.topic_audit(store, topic, now=round(self._now() * 1000))

    def explain(self, topic: str, window_start: int) -> Explanation | None:
        """Return the counts of a window by host and application, or None without a store."""
        store = self._opened()
        if store is None:
            return None
        from headworks._audit import queries

        with _database_errors():
            return queries.explain(store, topic, window_start)

    def windows(self, topic: str, count: int, *, until: int | None = None) -> TopicAudit | None:
        """Return a topic's newest windows, or those up to a time, or None without a store."""
        store = self._opened()
        if store is None:
            return None
        from headworks._audit import queries

        with _database_errors():
            now = round(self._now() * 1000) if until is None else until
            return queries.topic_audit(store, topic, now=now, windows=count)

    def samples(
        self, kind: SampleKind, names: Sequence[str], since: int, until: int
    ) -> Mapping[str, SampleSeries]:
        """Return what was sampled of each name between two times; empty without a store."""
        store = self._opened()
        if store is None:
            return {}
        from headworks._audit.store.samples import read_samples

        now = round(self._now() * 1000)
        with _database_errors():
            return {
                name: read_samples(store, kind, name, since=since, until=until, now=now)
                for name in names
            }

    def uses(self, topics: Collection[str], since: int) -> list[CountedUse]:
        """Return who wrote and read the schemas of topics since a time, and when last."""
        store = self._opened()
        if store is None:
            return []
        from headworks._audit.store.schema_uses import schema_uses

        with _database_errors():
            return schema_uses(store, topics, since=since)

    def producers(self, topic: str) -> Sequence[str]:
        """Return the applications that sent messages of the topic's newest windows."""
        store = self._opened()
        if store is None:
            return ()
        from headworks._audit.contributions import applications

        with _database_errors():
            return applications(store, topic, self._newest(store, topic), _PRODUCER)

    def contributions(self, topic: str) -> Sequence[Contribution]:
        """Return the counts of the topic's newest windows by tier, host, and application."""
        store = self._opened()
        if store is None:
            return ()
        from headworks._audit.contributions import contributions

        with _database_errors():
            return contributions(store, topic, self._newest(store, topic))

    def _newest(self, store: AuditStore, topic: str) -> list[int]:
        from headworks._audit import queries

        now = round(self._now() * 1000)
        newest = queries.topic_audit(store, topic, now=now, windows=_LINEAGE_WINDOWS)
        return [
            start
            for start, attempted in zip(newest.windows, newest.attempted, strict=True)
            if attempted
        ]

    def _opened(self) -> AuditStore | None:
        if self._store is not None:
            return self._store
        file = _file_of(self._url)
        if file is not None and not file.exists():
            return None
        from headworks._audit.store import AuditStore

        if not self._opening.acquire(timeout=_OPENING_SECONDS):
            raise UnreachableError(
                "the audit store is still being checked, as at each start of a console",
                fix="open the page again: a large store takes a minute or two",
            )
        try:
            if self._store is None:
                self._store = AuditStore(self._url, whole_check=False)
            return self._store
        finally:
            self._opening.release()


def _read(store: AuditStore, now: int) -> AuditSnapshot:
    from headworks._audit import queries
    from headworks._audit.findings import findings
    from headworks._audit.thresholds import checked_at, stored_thresholds

    names = [one.tier for one in queries.tiers(store) if one.tier != _PRODUCER][:_MAX_TIERS]
    health = {
        tier: queries.health(store, now=now, tier=tier, windows=WINDOWS, limit=_MAX_TOPICS)
        for tier in names or ["hadoop"]
    }
    thresholds = stored_thresholds(store)
    seen = tuple(findings(store, now, thresholds))
    patience = _patience_ms(thresholds)
    return AuditSnapshot(
        thresholds,
        health,
        queries.holes(store),
        seen,
        checked_at(store),
        queries.loader_lags(store),
        {tier: settled_sums(one, now, patience) for tier, one in health.items()},
    )


def _patience_ms(thresholds: Thresholds | None) -> int:
    return 0 if thresholds is None else thresholds.complete_within_ms


def settled_sums(health: Health, now_ms: int, patience_ms: int) -> tuple[SettledSums, ...]:
    """Return the sums of each row, as of the time at which it was read."""
    return tuple(SettledSums.of(row.cells, now_ms, patience_ms) for row in health.rows)


@contextmanager
def _database_errors() -> Iterator[None]:
    """Raise UnreachableError for any error of the database."""
    from sqlalchemy.exc import SQLAlchemyError

    try:
        yield
    except SQLAlchemyError as error:
        raise UnreachableError(
            f"the audit store does not answer: {error.__cause__ or error}",
            fix="start the database that the setting audit_store names, or correct its address",
        ) from None


def _file_of(url: str) -> Path | None:
    """Return the file of a SQLite store, or None for another database."""
    if not url.startswith(_SQLITE_PREFIX):
        return None
    return Path(url.removeprefix(_SQLITE_PREFIX).partition("?")[0])
