"""A cache of the schema ids that a registry has for each subject, and of checks of their data.

An id is known for a topic if the registry has it under the topic's subject: `TOPIC-value`, and
`TOPIC-key` for keys. ANY_ID asks whether there is such a subject at all.

Rules:

- The event loop only reads the cache (`status`, `check`). Threads look up missing ids, and all
  requests for the same id wait for the same lookup.
- A known id never changes. It is kept on disk too (`KnownSchemas`), so that a broker goes on
  without its registry. An unknown id, and a failed lookup, are cached for seconds. Their number is
  bounded.
- A failed lookup never counts as a known id. A subject that was missing when the registry last
  answered counts as missing while it does not answer.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from enum import Enum
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from headworks._broker.repeated_failure import RepeatedFailure
from headworks._broker.topics.known_schemas import KnownSchemas
from headworks.errors import HeadworksError, SchemaError

if TYPE_CHECKING:
    from headworks._decoding.datum_check import DatumCheck

_log = logging.getLogger(__name__)
_MAX_THREADS = 4
_TIMEOUT_SECONDS = 2.0
_UNKNOWN_SECONDS = 2.0
_NO_SUBJECT_SECONDS = 30.0
_UNREACHABLE_SECONDS = 1.0
_MAX_CACHED = 10_000

ANY_ID: Final = -1


class SubjectSchemaId(NamedTuple):
    """A question to the registry: whether a subject has a schema id, or ANY_ID.

    With `payload`, the data of the schema are to be checked as well.
    """

    subject: str
    schema_id: int
    payload: bool = False


class SchemaIdStatus(Enum):
    """The answer."""

    KNOWN = "known"
    UNKNOWN = "unknown"
    UNREACHABLE = "unreachable"
    NOT_CACHED = "not cached"


class SchemaIdCache:
    """The cache of the ids in the registry at `url`; `path` is the file of what is known."""

    def __init__(
        self, url: str, path: Path, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        from headworks.registry_client import (
            RegistryClient,
        )  # only brokers that validate schema ids import it

        self._client = RegistryClient(url, timeout=_TIMEOUT_SECONDS)
        self._clock = clock
        self._lookup_failures = RepeatedFailure(_log, f"schema ids cannot be looked up at {url}")
        self._threads = ThreadPoolExecutor(_MAX_THREADS, thread_name_prefix="schema-ids")
        self._known = KnownSchemas(path, url)
        self._checks: dict[int, DatumCheck | SchemaError] = {}
        # unknown ids and failed lookups: their status, and until when it is valid
        self._other: OrderedDict[SubjectSchemaId, tuple[SchemaIdStatus, float]] = OrderedDict()
        self._asked: dict[SubjectSchemaId, asyncio.Future[None]] = {}  # lookups in progress

    @property
    def url(self) -> str:
        """The registry's address."""
        return self._client.url

    def status(self, wanted: SubjectSchemaId) -> SchemaIdStatus:
        """Return the cached answer."""
        if self._known.has(wanted.subject, wanted.schema_id) and (
            not wanted.payload or wanted.schema_id in self._checks
        ):
            return SchemaIdStatus.KNOWN
        verdict, until = self._other.get(wanted, (SchemaIdStatus.NOT_CACHED, 0.0))
        return verdict if until > self._clock() else SchemaIdStatus.NOT_CACHED

    def check(self, schema_id: int) -> DatumCheck | SchemaError:
        """Return the check of an id that is KNOWN with `payload`, or why there can be none."""
        return self._checks[schema_id]

    async def look_up(self, wanted: Iterable[SubjectSchemaId]) -> None:
        """Look up ids in the registry and cache the results. Never fails."""
        loop = asyncio.get_running_loop()
        waiting = []
        for one in wanted:
            asked = self._asked.get(one)
            if asked is None:
                asked = self._asked[one] = loop.create_future()
                answer = loop.run_in_executor(self._threads, self._ask, one)
                answer.add_done_callback(partial(self._remember, one))
            waiting.append(asked)
        for asked in waiting:
            await asyncio.shield(asked)

    def close(self) -> None:
        """Stop looking up ids."""
        self._threads.shutdown(wait=False, cancel_futures=True)
        self._known.close()

    def _ask(self, wanted: SubjectSchemaId) -> SchemaIdStatus:
        """Ask the registry for what is not known; runs in a thread."""
        subject, schema_id, payload = wanted
        if schema_id == ANY_ID:
            return self._ask_subject(subject)
        if not self._known.has(subject, schema_id):
            if self._client.version_of(schema_id, subject) is None:
                return SchemaIdStatus.UNKNOWN
            self._known.add(subject, schema_id)
        if payload and schema_id not in self._checks:
            text = self._known.text(schema_id)
            if text is None:
                text = self._client.schema_text(schema_id, subject)
                self._known.add_text(schema_id, text)
            self._checks[schema_id] = _check_of(text)
        return SchemaIdStatus.KNOWN

    def _ask_subject(self, subject: str) -> SchemaIdStatus:
        try:
            found = bool(self._client.versions(subject))
        except HeadworksError:
            if self._known.lacks(subject):
                return SchemaIdStatus.UNKNOWN
            raise
        if found:
            self._known.add(subject, ANY_ID)
            return SchemaIdStatus.KNOWN
        self._known.add_missing(subject)
        return SchemaIdStatus.UNKNOWN

    def _remember(self, wanted: SubjectSchemaId, answer: asyncio.Future[SchemaIdStatus]) -> None:
        asked = self._asked.pop(wanted)
        if not asked.done():
            asked.set_result(None)
        if answer.cancelled():
            return
        error, verdict = answer.exception(), SchemaIdStatus.UNREACHABLE
        about = {"subject": wanted.subject, "schema_id": wanted.schema_id}
        if error is None:
            verdict = answer.result()
            self._lookup_failures.recovered(about)
        elif isinstance(error, HeadworksError):
            self._lookup_failures.failed(error, about)
        else:
            _log.error(
                "schema id %d of subject %s", wanted[1], wanted[0], exc_info=error, extra=about
            )
        if verdict is SchemaIdStatus.KNOWN:
            return
        self._other[wanted] = verdict, self._clock() + _seconds(wanted, verdict)
        self._other.move_to_end(wanted)
        if len(self._other) > _MAX_CACHED:
            self._other.popitem(last=False)


def _seconds(wanted: SubjectSchemaId, verdict: SchemaIdStatus) -> float:
    """Return how long an answer is valid that is not KNOWN."""
    if verdict is SchemaIdStatus.UNREACHABLE:
        return _UNREACHABLE_SECONDS
    return _NO_SUBJECT_SECONDS if wanted.schema_id == ANY_ID else _UNKNOWN_SECONDS


def _check_of(text: str) -> DatumCheck | SchemaError:
    from headworks._decoding.datum_check import DatumCheck  # only topics that check payloads do
    from headworks.schema import parse

    try:
        check = DatumCheck(parse(text))
        check.prepare()
    except SchemaError as error:
        return error
    except RecursionError:
        return SchemaError("the schema is nested too deeply to check its data")
    return check
