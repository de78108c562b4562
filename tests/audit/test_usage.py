"""The users of each schema: counted, not counted, and never seen are three different answers."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from sqlalchemy import delete

from headworks._audit.increments import CountedSchema, Increment
from headworks._audit.store import AuditStore, database, tables
from headworks._audit.store.apply import IncrementBatch, apply, positions
from headworks._audit.store.evidence import last_hole, note_hole
from headworks._audit.store.retention import Retention, remove_expired
from headworks._audit.store.schema_uses import schema_uses
from headworks._audit.usage import (
    CountedUse,
    KnownVersion,
    ReadingGroup,
    SubjectUsage,
    subject_usage,
)

pytestmark = pytest.mark.unit

HOUR = 3_600_000
DAY = 24 * HOUR
V1, V2 = KnownVersion(1, 11), KnownVersion(2, 12, "use version 3")


def increment(
    tier: str,
    schemas: tuple[CountedSchema, ...] | None,
    *,
    at: int,
    application: str = "app",
    host: str = "host",
    topic: str = "t",
) -> Increment:
    counts = {"delivered": 1}
    return Increment(
        *(str(uuid.uuid4()), topic, tier, 0, counts, 0, host, application, at), schemas=schemas
    )


def wrote(schema_id: int | None, messages: int = 1) -> tuple[CountedSchema, ...]:
    return (CountedSchema(schema_id, None, messages),)


def read(written: int, reader: int | None) -> tuple[CountedSchema, ...]:
    return (CountedSchema(written, reader, 1),)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[AuditStore]:
    opened = AuditStore(f"sqlite:///{tmp_path / 'audit.db'}")
    yield opened
    opened.close()


def add(store: AuditStore, *increments: Increment) -> None:
    with store.read() as connection:
        start = positions(connection)
    end = {0: start.get(0, 0) + len(increments)}
    apply(store, IncrementBatch(start, end, increments, 0, live=False))


def usage(store: AuditStore, *readers: ReadingGroup) -> SubjectUsage:
    uses = schema_uses(store, ["t"])
    hole = last_hole(store)
    return subject_usage(
        "t-value", [V1, V2], uses, readers, topics=["t"], as_of=100 * DAY, last_hole=hole
    )


def test_a_topic_that_nobody_counted_is_not_a_topic_that_nobody_uses(store: AuditStore) -> None:
    assert usage(store).since is None
    add(store, increment("producer", None, at=DAY))
    assert usage(store).since is None
    assert [user.tier for user in usage(store).uncounted] == ["producer"]


def test_the_evidence_begins_when_the_last_uncounted_report_ended(store: AuditStore) -> None:
    add(store, increment("producer", wrote(11), at=DAY), increment("consumer:g", None, at=3 * DAY))
    add(store, increment("consumer:g", read(11, 12), at=4 * DAY))
    assert usage(store).since == 3 * DAY


def test_the_evidence_begins_after_the_last_hole_in_the_counts(store: AuditStore) -> None:
    add(store, increment("producer", wrote(11), at=DAY))
    for hole in (3 * DAY, 2 * DAY):
        with store.write() as connection:
            note_hole(connection, hole)
        assert usage(store).since == 3 * DAY


def test_an_increment_that_came_twice_is_one_use(store: AuditStore) -> None:
    one = increment("producer", wrote(11, 5), at=DAY)
    add(store, one, one)
    add(store, one)
    version = usage(store).version(1)
    assert version is not None
    assert [user.messages for user in version.written_by] == [5]


def test_each_kind_of_reader_and_writer_is_told_apart(store: AuditStore) -> None:
    add(
        store,
        increment("producer", wrote(12), at=DAY),
        increment("producer", wrote(99), at=DAY, application="foreign"),
        increment("producer", wrote(None), at=DAY, application="raw"),
        increment("mirror:m", wrote(11), at=DAY, application="headworks-mirror"),
        increment("consumer:old", read(12, 11), at=DAY),
        increment("consumer:dicts", read(12, None), at=DAY),
        increment("consumer:own", read(12, 0), at=DAY),
        increment("hadoop", (CountedSchema(12, 12, 7),), at=DAY, application="headworks-loader"),
        increment("producer", wrote(11), at=DAY, topic="another"),
    )
    found = usage(store)
    first, second = found.version(1), found.version(2)
    assert first is not None
    assert second is not None
    assert [user.tier for user in first.written_by] == ["mirror:m"]
    assert [user.group for user in first.read_by] == ["old"]
    assert [user.tier for user in second.written_by] == ["producer"]
    assert [user.tier for user in second.read_by] == ["hadoop"]
    assert second.deprecated == "use version 3"
    assert {user.application for user in found.other_writers} == {"foreign", "raw"}
    assert [user.group for user in found.dict_readers] == ["dicts"]
    assert [user.group for user in found.unregistered_readers] == ["own"]


def test_unknown_readers_are_those_that_do_not_report(store: AuditStore) -> None:
    add(
        store,
        increment("producer", wrote(12), at=10 * DAY),
        increment("consumer:counted", read(12, 12), at=10 * DAY - HOUR),
        increment("consumer:silent", read(12, 12), at=5 * DAY),
        increment("consumer:stopped", read(12, 12), at=5 * DAY),
        increment("consumer:old-sdk", None, at=10 * DAY),
    )
    groups = ("counted", "silent", "old-sdk", "plain")
    readers = [ReadingGroup("t", name, is_active=True) for name in groups]
    readers += [ReadingGroup("t", "stopped", is_active=False)]
    assert usage(store, *readers).unknown_readers == ("old-sdk", "plain", "silent")


def test_old_hosts_become_one_row_and_applications_stay_known(store: AuditStore) -> None:
    for day in range(20):
        add(store, increment("producer", wrote(11), at=day * DAY, host=f"pod-{day}"))
    before = usage(store).version(1)
    remove_expired(store, 30 * DAY, Retention())
    assert len(schema_uses(store)) == 5  # pod-16 to pod-19, and the others together
    after = usage(store).version(1)
    assert before is not None
    assert after is not None
    assert after.written_by[0].messages == before.written_by[0].messages == 20
    assert after.written_by[0].last_used == 19 * DAY
    assert usage(store).since == 0
    remove_expired(store, 500 * DAY, Retention())
    assert schema_uses(store) == []
    # The store does not know the uses of before the removal any more.
    add(store, increment("producer", wrote(12), at=20 * DAY))
    assert usage(store).since == 100 * DAY


def test_a_store_of_an_older_release_has_counted_nothing_by_schema(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = f"sqlite:///{tmp_path / 'audit.db'}"
    with monkeypatch.context() as patched:
        patched.setattr(database, "_STEPS", database._STEPS[:2])
        older = AuditStore(url)
    add(older, increment("producer", wrote(11), at=DAY), increment("consumer:g", None, at=2 * DAY))
    with older.write() as connection:
        connection.execute(delete(tables.schema_uses))
    older.close()
    newer = AuditStore(url)
    assert {(use.tier, use.is_counted) for use in schema_uses(newer)} == {
        ("producer", False),
        ("consumer:g", False),
    }
    add(newer, increment("producer", wrote(12), at=9 * DAY))
    assert usage(newer).since == 9 * DAY
    newer.close()


def test_the_newest_user_comes_first(store: AuditStore) -> None:
    for at, name in ((1, "a"), (3, "b"), (2, "c")):
        add(store, increment("producer", wrote(11), at=at * DAY, application=name))
    found = usage(store).version(1)
    assert found is not None
    assert [user.application for user in found.written_by] == ["b", "c", "a"]
    assert isinstance(schema_uses(store)[0], CountedUse)
