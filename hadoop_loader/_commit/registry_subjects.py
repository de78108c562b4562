"""The schemas that the registry has of many topics, in few requests.

Rules:

- An answer holds every version that messages may have been written with, soft-deleted ones too.
- A subject's versions are read again if its latest one, or the numbers of its versions, changed.
  Otherwise the texts of the previous answer are returned: a version never changes. So a loader that
  runs every ten minutes does not read 40,000 schemas each time. With a `VersionCache`, a loader
  that was just started does not either.
- Versions that `prefetch` reads are checked in the same way, so it may read them before the end
  offsets.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from itertools import groupby
from operator import attrgetter
from threading import Thread
from typing import TypeVar

from hadoop_loader._commit.version_cache import KnownSubject, VersionCache
from hadoop_loader._decode.recursive_types import flat_schema
from hadoop_loader._storage.filesystem import AnyPath
from hadoop_loader._tasks.load_task import WriterSchema
from headworks.errors import RefusedError
from headworks.registry_client import RegistryClient, SubjectVersion
from headworks.schema import subject_of

# The versions of a topic's subject, or the refusal to show them.
SchemaLookup = tuple[WriterSchema, ...] | RefusedError
# The versions of a listing, by the subject's name or alias.
_Listing = dict[str, list[SubjectVersion]]
# The latest versions of topics, by topic.
LatestVersions = Mapping[str, WriterSchema]
# See `RegistrySubjects.prefetch`.
Prefetch = Callable[[Collection[str], Callable[[LatestVersions], None]], None]
Result = TypeVar("Result")

_LOOKUP_THREADS = 8
_FORBIDDEN_STATUSES = (401, 403)  # 401: a request without credentials
# One listing replaces many lookups: a version in it costs a tenth of a lookup.
_MAX_SINGLE_LOOKUPS = 8
_LISTED_VERSIONS_PER_TOPIC = 10


class RegistrySubjects:
    """The registry's subjects, as the loader needs them.

    `recursive_json`: recursive types become JSON text (see `recursive_types`). `cache`: the file
    that keeps the versions of many topics for the next process.
    """

    def __init__(
        self,
        registry: RegistryClient,
        *,
        recursive_json: bool = False,
        cache: AnyPath | None = None,
    ) -> None:
        self._registry = registry
        self._recursive_json = recursive_json
        self._cache = None
        if cache is not None:
            self._cache = VersionCache(cache, recursive_json=recursive_json)
        self._lists_numbers = True  # until the registry shows that it cannot
        # By subject, of the last call with many topics; None: of the cache.
        self._known: dict[str, KnownSubject] | None = None
        self._stored: dict[str, KnownSubject] = {}  # in the cache
        self._prefetch: Future[dict[str, KnownSubject]] | None = None  # for the next call
        self._writer_of_cache: Thread | None = None

    def prefetch(
        self, topics: Collection[str], use_latest: Callable[[LatestVersions], None] | None = None
    ) -> None:
        """Start to read the versions of many topics in a thread, unless some are known.

        The next call of `versions` for many topics waits for them, and raises the error if the
        registry did not answer. A registry that lists no numbers is not asked, because the check
        of what was read would take a request for each topic.

        `use_latest` is called in another thread while all versions are awaited. It gets the latest
        versions that refer to no other schema. The registry may change them until `versions` ends.
        """
        running = self._prefetch is not None and not self._prefetch.done()
        if len(topics) > _MAX_SINGLE_LOOKUPS and not running and not self._known_before():
            subjects = {subject_of(topic): topic for topic in topics}
            self._prefetch = _in_background(partial(self._read_ahead, subjects, use_latest))

    def versions(self, topics: Collection[str]) -> dict[str, SchemaLookup]:
        """Return every version of each topic's subject, the latest last; none if none is live.

        Soft-deleted versions are included, because their messages stay readable. If this loader
        may not read a subject, the registry's refusal takes the place of its versions.

        The latest versions of many topics come from one listing. All versions of those that are
        new or changed come from another one, unless most of its versions belong to other topics.
        A subject that a listing lacks is looked up by name: the loader may not be allowed to read
        it.
        """
        subjects = {topic: subject_of(topic) for topic in topics}
        with ThreadPoolExecutor(_LOOKUP_THREADS, "registry") as pool:
            if len(subjects) > _MAX_SINGLE_LOOKUPS:
                before = self._prefetched() or self._known_before()
                with _no_garbage():
                    known = self._known = self._read_many(pool, [*subjects.values()], before)
                    self._store(known)
            else:
                known = {}
            rest = [subject for subject in subjects.values() if subject not in known]
            others = dict(zip(rest, pool.map(self._look_up, rest), strict=True))
        return {t: known[s].writers if s in known else others[s] for t, s in subjects.items()}

    def _prefetched(self) -> dict[str, KnownSubject]:
        """Return what was prefetched; none if nothing was, or the registry changed meanwhile."""
        if self._prefetch is None:
            return {}
        prefetch, self._prefetch = self._prefetch, None
        try:
            return prefetch.result()
        except RefusedError:  # of a schema that was deleted after it had been listed
            return {}

    def _read_ahead(
        self, topics: Mapping[str, str], use: Callable[[LatestVersions], None] | None
    ) -> dict[str, KnownSubject]:
        """Read the versions of `topics`, which are by subject."""
        subjects = [*topics]
        if self._listed_numbers(subjects[0]) is None:
            return {}
        with _no_garbage(), ThreadPoolExecutor(_LOOKUP_THREADS, "registry-ahead") as pool:

            def use_latest(latest: Mapping[str, SubjectVersion]) -> None:
                if use is not None:
                    simple = {s: latest[s] for s in latest if not latest[s].references}
                    pool.submit(use, {topics[s]: self._writer(simple[s]) for s in simple})

            return self._read_many(pool, subjects, {}, use_latest)

    def _read_many(
        self,
        pool: ThreadPoolExecutor,
        subjects: Sequence[str],
        before: Mapping[str, KnownSubject],
        use_latest: Callable[[Mapping[str, SubjectVersion]], None] = lambda _latest: None,
    ) -> dict[str, KnownSubject]:
        """Return the versions of those subjects that the registry lists; `before`: as last read.

        `use_latest` gets the latest versions, by subject, before the others are requested.
        """
        most = _LISTED_VERSIONS_PER_TOPIC * len(subjects)
        listed = self._listing("", most, latest_only=True)
        # A registry that lists all versions nonetheless has the latest among them.
        latest = {subject: max(found, key=_identity) for subject, found in listed.items()}
        present = [subject for subject in subjects if subject in latest]
        use_latest({subject: latest[subject] for subject in present})
        known = self._unchanged(pool, present, latest, before)
        new = [subject for subject in present if subject not in known]
        every = self._listed(new, latest) if len(new) > _MAX_SINGLE_LOOKUPS else {}
        # Apart, because a thread is worth its start for a request only.
        found = [self._known_subject(latest[one], every.get(one)) for one in new]
        absent = [one for one, at in zip(new, found, strict=True) if at is None]
        found += pool.map(partial(self._read, latest), absent)
        known |= {s: at for s, at in zip([*new, *absent], found, strict=True) if at is not None}
        return known

    def _known_before(self) -> dict[str, KnownSubject]:
        """Return the versions of the last call, or of the last process that had the cache."""
        if self._known is None:
            self._known = self._stored = {} if self._cache is None else self._cache.read()
        return self._known

    def _store(self, known: dict[str, KnownSubject]) -> None:
        """Write the cache in a thread, which no load waits for and the process does."""
        if self._cache is not None and known != self._stored:
            if self._writer_of_cache is not None:
                self._writer_of_cache.join()
            self._writer_of_cache = Thread(
                target=self._cache.write, args=(known,), name="registry-cache"
            )
            self._writer_of_cache.start()
            self._stored = known

    def _unchanged(
        self,
        pool: ThreadPoolExecutor,
        subjects: Iterable[str],
        latest: Mapping[str, SubjectVersion],
        before: Mapping[str, KnownSubject],
    ) -> dict[str, KnownSubject]:
        """Return those of `before` that have the same versions."""
        same = {
            subject: known
            for subject in subjects
            if (known := before.get(subject))
            and known.latest == _identity(latest[subject])
            and known.registered_ms == latest[subject].registered_ms
        }
        listed = self._listed_numbers() if len(same) > _MAX_SINGLE_LOOKUPS else None
        if listed is None:
            numbers = dict(zip(same, pool.map(self._numbers, same), strict=True))
        else:
            numbers = {one: listed.get(latest[one].subject, ()) for one in same}
        return {s: known for s, known in same.items() if numbers[s] == known.numbers}

    def _listed_numbers(self, prefix: str = "") -> dict[str, tuple[int, ...]] | None:
        """Return the numbers of all versions of subjects; None if there is no such list."""
        if not self._lists_numbers:
            return None
        try:
            found = self._registry.version_numbers(prefix, deleted=True)
        except RefusedError:
            found = None
        self._lists_numbers = found is not None
        return None if found is None else {one: tuple(each) for one, each in found.items()}

    def _numbers(self, subject: str) -> tuple[int, ...]:
        try:
            return tuple(self._registry.versions(subject, deleted=True))
        except RefusedError:
            return ()

    def _listed(self, subjects: Collection[str], latest: Mapping[str, SubjectVersion]) -> _Listing:
        """Return all versions of all subjects; none if single lookups cost less, or no listing."""
        total = sum(one.version for one in latest.values())
        lookups = _LISTED_VERSIONS_PER_TOPIC * len(subjects)
        if total > lookups + sum(latest[subject].version for subject in subjects):
            return {}
        return self._listing("", deleted=True)

    def _read(self, latest: Mapping[str, SubjectVersion], subject: str) -> KnownSubject | None:
        """Return all versions of a subject, from a listing of its own; None if it has not all."""
        found = self._listing(subject, deleted=True).get(subject)
        return self._known_subject(latest[subject], found)

    def _known_subject(
        self, now: SubjectVersion, found: Sequence[SubjectVersion] | None
    ) -> KnownSubject | None:
        """Return the subject with the latest version `now`; None if `found` is without it."""
        if not found or _identity(now) not in map(_identity, reversed(found)):
            return None
        numbers = tuple(sorted(one.version for one in found))
        return KnownSubject(
            _identity(now), now.registered_ms, numbers, self._writers(found, now.version)
        )

    def _look_up(self, subject: str) -> SchemaLookup:
        try:
            live = self._registry.versions(subject)
        except RefusedError as error:
            if error.status not in _FORBIDDEN_STATUSES:
                raise
            return error
        if not live:
            return ()
        every = self._listing(subject, deleted=True, only_listed=False).get(subject)
        return self._writers(every or self._registry.history(subject), max(live))

    def _listing(
        self,
        prefix: str,
        most: int | None = None,
        *,
        deleted: bool = False,
        latest_only: bool = False,
        only_listed: bool = True,
    ) -> _Listing:
        """Return the versions of all subjects with a prefix; none if there are `most`, or no
        listing.

        An alias has the versions of the subject that it stands for, and none of its own. Only
        Confluent's complete interface has listings; other registries implement parts of it.
        """
        try:
            versions = self._registry.list_versions(
                prefix,
                aliases=True,
                limit=most,
                deleted=deleted,
                latest_only=latest_only,
                only_listed=only_listed,
            )
        except RefusedError:
            return {}
        if most is not None and len(versions) >= most:
            return {}
        aliases = {name for one in versions for name in one.aliases}
        found: _Listing = {}
        for subject, some in groupby(versions, attrgetter("subject")):
            each = [*some]
            own = () if subject in aliases else (subject,)
            for name in (*own, *each[0].aliases):
                found.setdefault(name, []).extend(each)
        return found

    def _writers(self, versions: Iterable[SubjectVersion], latest: int) -> tuple[WriterSchema, ...]:
        ordered = sorted(versions, key=lambda one: (one.version == latest, one.version))
        if self._recursive_json or any(one.references for one in ordered):
            return tuple(map(self._writer, ordered))
        return tuple([WriterSchema(one.id, one.version, one.text) for one in ordered])

    def _writer(self, one: SubjectVersion) -> WriterSchema:
        text = self._registry.schema_text(one.id, one.subject) if one.references else one.text
        flat = flat_schema(text) if self._recursive_json else None
        return WriterSchema(one.id, one.version, flat or text, text if flat else "")


def require_versions(topic: str, lookups: Mapping[str, SchemaLookup]) -> tuple[WriterSchema, ...]:
    """Return a topic's versions, or raise the registry's refusal."""
    found = lookups[topic]
    if isinstance(found, RefusedError):
        raise found
    return found


@contextmanager
def _no_garbage() -> Iterator[None]:
    """Pause garbage collection: scanning 40,000 new versions takes as long as reading them."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def _in_background(function: Callable[[], Result]) -> Future[Result]:
    """Call a function in a thread that holds up no exit of the process."""
    future: Future[Result] = Future()

    def run() -> None:
        try:
            future.set_result(function())
        except BaseException as error:
            future.set_exception(error)

    Thread(target=run, name="registry-ahead", daemon=True).start()
    return future


def _identity(one: SubjectVersion) -> tuple[int, int]:
    return one.version, one.id
