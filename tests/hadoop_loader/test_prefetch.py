"""Versions that are read while the brokers are asked, and checked afterwards."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Collection
from pathlib import Path
from queue import Queue
from typing import Any

import pytest

from hadoop_loader._commit import table_history, topic_plans
from hadoop_loader._commit.commit_log import CommitLog
from hadoop_loader._commit.policy import Policy
from hadoop_loader._commit.registry_subjects import (
    LatestVersions,
    RegistrySubjects,
    SchemaLookup,
    require_versions,
)
from hadoop_loader._operations.load import Load
from hadoop_loader._tasks.load_task import WriterSchema
from headworks import schema
from headworks.errors import RefusedError, UnreachableError
from headworks.registry_client import Reference, SubjectVersion
from headworks.schema import Schema, subject_of
from tests.hadoop_loader.memory import World
from tests.hadoop_loader.test_version_cache import TOPICS, Registry, wait_for_file

pytestmark = pytest.mark.unit

_EVERYTHING = ["latest", "all"]
_CHECK = ["latest", "numbers"]


class Slow(Registry):
    """A registry whose list of all versions waits until it may be sent; it fails on request."""

    def __init__(self) -> None:
        super().__init__()
        self.sent = threading.Event()
        self.asked_for_all = threading.Event()
        self.failure: Exception | None = None

    def list_versions(self, prefix: str = "", **more: Any) -> list[SubjectVersion]:
        found = super().list_versions(prefix, **more)
        if not more["latest_only"]:
            self.asked_for_all.set()
            assert self.sent.wait(20)
            if self.failure is not None:
                raise self.failure
        return [*found]


@pytest.fixture
def registry() -> Slow:
    found = Slow()
    found.sent.set()
    return found


def _now(registry: Registry) -> dict[str, SchemaLookup]:
    """Return the versions as a loader without a prefetch reads them."""
    asked = [*registry.asked]
    found = RegistrySubjects(registry).versions(TOPICS)
    registry.asked[:] = asked
    return found


def _version(topic: str, number: int, text: str = '"long"') -> SubjectVersion:
    return SubjectVersion(subject_of(topic), number, 900 + number, text, registered_ms=9_000)


def test_versions_are_read_while_something_else_is_done(registry: Slow, tmp_path: Path) -> None:
    registry.sent.clear()
    file = tmp_path / "versions"
    subjects = RegistrySubjects(registry, cache=file)
    subjects.prefetch(TOPICS)
    assert registry.asked_for_all.wait(20)
    subjects.prefetch(TOPICS)  # nothing more: it is running
    registry.sent.set()
    assert subjects.versions(TOPICS) == _now(registry)
    assert registry.asked == ["numbers", *_EVERYTHING, *_CHECK]
    wait_for_file()
    stored = RegistrySubjects(registry, cache=file)
    registry.asked.clear()
    stored.prefetch(TOPICS)  # the file has them all
    assert registry.asked == []
    assert stored.versions(TOPICS) == _now(registry)
    assert registry.asked == _CHECK


def test_the_latest_versions_are_used_while_all_are_awaited(registry: Slow) -> None:
    registry.sent.clear()
    refers = registry.held[-1]._replace(references=(Reference("other", "other", 1),))
    registry.held[-1] = refers
    used: Queue[LatestVersions] = Queue()
    subjects = RegistrySubjects(registry)
    subjects.prefetch(TOPICS, used.put)
    latest = used.get(timeout=20)
    registry.held[-1] = refers._replace(references=())
    registry.sent.set()
    found = subjects.versions(TOPICS)
    assert latest == {one: require_versions(one, found)[-1] for one in TOPICS[:-1]}


def _registered(registry: Registry) -> None:
    registry.held.append(_version(TOPICS[-1], 9))


def _deleted(registry: Registry) -> None:
    registry.held = [one for one in registry.held if one.version != 2]


def _gone(registry: Registry) -> None:
    registry.held = [one for one in registry.held if one.subject != subject_of(TOPICS[1])]


def _imported(registry: Registry) -> None:
    registry.held.insert(0, _version(TOPICS[2], 7))
    registry.held.insert(0, registry.held[-1]._replace(version=0, id=800))


@pytest.mark.parametrize("change", [_registered, _deleted, _gone, _imported])
def test_what_the_registry_changes_meanwhile_is_noticed(
    registry: Slow, monkeypatch: pytest.MonkeyPatch, change: Callable[[Registry], None]
) -> None:
    monkeypatch.setattr(Registry, "versions", _live)
    subjects = RegistrySubjects(registry)
    before = _now(registry)
    subjects.prefetch(TOPICS)
    assert registry.asked_for_all.wait(20)
    subjects._prefetch.result(20)  # type: ignore[union-attr]
    change(registry)
    found = subjects.versions(TOPICS)
    assert found != before
    assert found == _now(registry)


def _live(registry: Registry, subject: str, *, deleted: bool = False) -> list[int]:
    return [one.version for one in registry.held if one.subject == subject]


def test_a_failure_is_raised_once_and_the_next_load_reads_again(registry: Slow) -> None:
    subjects = RegistrySubjects(registry)
    registry.failure = UnreachableError("no registry answers")
    subjects.prefetch(TOPICS)
    with pytest.raises(UnreachableError, match="no registry answers"):
        subjects.versions(TOPICS)
    registry.failure = None
    assert subjects.versions(TOPICS) == _now(registry)

    again = RegistrySubjects(registry)
    registry.failure = UnreachableError("no registry answers")
    again.prefetch(TOPICS)  # for a load whose brokers do not answer
    again._prefetch.exception(20)  # type: ignore[union-attr]
    registry.failure = None
    again.prefetch(TOPICS)
    assert again.versions(TOPICS) == _now(registry)


def test_a_schema_that_is_deleted_while_it_is_read_fails_no_load(registry: Slow) -> None:
    subjects = RegistrySubjects(registry)
    registry.failure = RefusedError("schema 7 not found", status=404, code=40403)
    registry.sent.clear()
    subjects.prefetch(TOPICS)
    assert registry.asked_for_all.wait(20)
    registry.held = [one for one in registry.held if one.version != 2]
    registry.sent.set()
    assert subjects._prefetch is not None
    subjects._prefetch.exception(20)
    registry.failure = None
    assert subjects.versions(TOPICS) == _now(registry)


def test_nothing_is_read_that_costs_more_than_it_saves(
    registry: Slow, monkeypatch: pytest.MonkeyPatch
) -> None:
    few = RegistrySubjects(registry)
    few.prefetch(TOPICS[:8])
    known = RegistrySubjects(registry)
    known.versions(TOPICS)
    registry.asked.clear()
    known.prefetch(TOPICS)
    assert registry.asked == []
    # Without numbers in one list, the check would take a request for each topic.
    monkeypatch.setattr(Slow, "version_numbers", lambda *_, **__: None)
    another = RegistrySubjects(registry)
    another.prefetch(TOPICS)
    assert another.versions(TOPICS) == _now(registry)
    assert registry.asked == _EVERYTHING


def test_a_prefetch_alone_writes_nothing(registry: Slow, tmp_path: Path) -> None:
    file = tmp_path / "versions"
    subjects = RegistrySubjects(registry, cache=file)
    subjects.prefetch(TOPICS)
    subjects._prefetch.result(20)  # type: ignore[union-attr]
    assert not file.exists()  # as of a loader that is killed before it has the end offsets


@pytest.mark.parametrize("content", [b"", b"x" * 100])
def test_a_damaged_file_is_replaced_by_what_was_prefetched(
    registry: Slow, tmp_path: Path, content: bytes
) -> None:
    file = tmp_path / "versions"
    file.write_bytes(content)
    subjects = RegistrySubjects(registry, cache=file)
    subjects.prefetch(TOPICS)
    assert subjects.versions(TOPICS) == _now(registry)
    wait_for_file()
    registry.asked.clear()
    assert RegistrySubjects(registry, cache=file).versions(TOPICS) == _now(registry)
    assert registry.asked == _CHECK


def test_a_load_prefetches_before_it_asks_for_ends_and_checks_afterwards(tmp_path: Path) -> None:
    world, steps = World(tmp_path / "w"), []
    world.register("clicks", {"type": "record", "name": "C", "fields": []})
    context = world.context()
    marks = world.log.watermarks

    def watermarks(topics: Any) -> Any:
        steps.append("ends")
        return marks(topics)

    def versions(topics: Collection[str]) -> Any:
        steps.append("versions")
        return context.versions(topics)

    world.log.watermarks = watermarks  # type: ignore[method-assign]
    changed = world.context(
        versions=versions, prefetch_versions=lambda topics, _: steps.append(f"prefetch {[*topics]}")
    )
    Load(changed).run()
    assert [one.partition(" ")[0] for one in steps] == ["prefetch", "ends", "versions"]


def test_schemas_that_were_checked_while_versions_were_read_are_not_checked_again(
    tmp_path: Path,
) -> None:
    world, verdicts = World(tmp_path / "w"), topic_plans._check_history
    name = f"N{time.monotonic_ns()}"  # the verdicts of other tests are known
    schema = {"type": "record", "name": name, "fields": []}
    world.log.append(name, b"")
    world.register(name, schema)
    given = []

    def prefetch(topics: Collection[str], use: Callable[[LatestVersions], None]) -> None:
        before = verdicts.cache_info().misses
        use({topic: world.subjects[topic][-1] for topic in topics})
        given.append(verdicts.cache_info().misses - before)

    context = world.context(prefetch_versions=prefetch)
    before = verdicts.cache_info().misses
    Load(context).run()
    assert (given, verdicts.cache_info().misses - before) == ([1], 1)
    world.register(name, {**schema, "doc": "new"})
    Load(context).run()
    assert (given, verdicts.cache_info().misses - before) == ([1, 0], 2)  # it has a table


def test_a_plan_parses_no_schema_that_was_checked_beforehand(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    parsed: list[str] = []

    def parse(text: str, **more: Any) -> Schema:
        parsed.append(text)
        return schema.parse(text, **more)

    monkeypatch.setattr(table_history, "parse", parse)
    run = time.monotonic_ns()  # the schemas of other tests are known
    latest = {
        f"topic{n}": WriterSchema(
            n, 1, json.dumps({"type": "record", "name": f"N{run}_{n}", "fields": []})
        )
        for n in range(40)
    }
    topic_plans.check_new_tables(latest)
    assert len(parsed) == len(latest)
    versions = {topic: (writer,) for topic, writer in latest.items()}
    log = CommitLog(tmp_path)
    found = topic_plans.plan_topics(latest, lambda _topics: versions, None, log, Policy())
    assert (len(found.plans), len(parsed)) == (len(latest), len(latest))
