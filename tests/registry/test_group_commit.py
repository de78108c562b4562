"""Writers of one process that queue: one flush for all, and each succeeds or fails by itself."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Connection
from sqlalchemy.exc import OperationalError

from headworks._registry.model.schema_limits import SchemaLimits
from headworks._registry.operations.parsed_schemas import SchemaCache
from headworks._registry.operations.reader import RegistryReader
from headworks._registry.operations.registrar import ProposedSchema, Registrar
from headworks._registry.operations.response_bodies import (
    DEFAULT_FORMAT,
    ResponseFormat,
    version_entity,
)
from headworks._registry.operations.version_listing import VersionFilter
from headworks._registry.store import RegistryStore
from headworks._server.database import write_group
from headworks._server.database.write_group import WriteGroup
from headworks.errors import RefusedError
from tests.registry.rest import record, text_of
from tests.waiting import until

pytestmark = pytest.mark.unit

WRITERS = 12


@pytest.fixture
def store(tmp_path: Path) -> Iterator[RegistryStore]:
    opened = RegistryStore(f"sqlite:///{tmp_path / 'registry.db'}")
    yield opened
    opened.close()


def together(store: RegistryStore, works: list[Callable[[], object]]) -> list[Future[object]]:
    """Run every piece of work in a thread of its own, while a writer before them is at work."""
    with ThreadPoolExecutor(len(works)) as pool:
        with store.write():
            running = [pool.submit(work) for work in works]
            until(lambda: store._queued == len(works))
        return running


def registering(store: RegistryStore, subject: str, text: str) -> Callable[[], object]:
    registrar = Registrar(store, SchemaCache(), SchemaLimits())
    return lambda: registrar.register(subject, ProposedSchema(text), who="me")["id"]


@pytest.fixture
def commits(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The number of members of each group that was committed."""
    found: list[int] = []
    commit = WriteGroup.commit

    def counted(group: WriteGroup) -> None:
        found.append(group.members)
        commit(group)

    monkeypatch.setattr(WriteGroup, "commit", counted)
    monkeypatch.setattr(write_group, "_MAX_SECONDS", 600)
    return found


def test_writers_that_queue_are_committed_together(
    store: RegistryStore, commits: list[int]
) -> None:
    works = [registering(store, f"s{n}", text_of(record(f"f{n}:long"))) for n in range(WRITERS)]
    before = store.revision()
    ids = [one.result() for one in together(store, works)]
    assert sorted(map(str, ids)) == sorted(map(str, range(1, WRITERS + 1)))
    assert commits == [WRITERS + 1]
    assert store.revision() - before == 1


def test_a_group_is_bounded_in_members_and_time(
    store: RegistryStore, commits: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails() -> None:
        with store.write():
            raise ValueError("no")

    monkeypatch.setattr(write_group, "_MAX_MEMBERS", 4)
    together(store, [fails] * 6)
    assert commits == [1], "those that fail count as well"
    monkeypatch.setattr(write_group, "_MAX_SECONDS", 0)
    works = [registering(store, f"s{n}", text_of(record(f"f{n}:long"))) for n in range(3)]
    together(store, works)
    assert commits == [1] * 5


def test_nothing_is_committed_after_the_database_gave_up_the_transaction(
    store: RegistryStore, commits: list[int]
) -> None:
    """As SQLite does by itself when the disk is full: no savepoint is left then."""

    def gives_up() -> None:
        with store.write() as connection:
            connection.exec_driver_sql("ROLLBACK")
            raise ValueError("the disk is full")

    store._queued += 1  # it keeps the group open for the second member
    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(registering(store, "s", text_of(record("id:long"))))
        until(lambda: store._group is not None and store._group.members == 1)
        with pytest.raises(OperationalError, match="no such savepoint"):
            gives_up()
        assert isinstance(first.exception(), OperationalError)
    store._queued -= 1
    assert (commits, store.revision()) == ([], 0)
    assert registering(store, "s", text_of(record("id:long")))() == 1


def test_equal_schemas_of_one_group_have_one_id(store: RegistryStore) -> None:
    text = text_of(record("id:long"))
    works = [registering(store, f"s{n}", text) for n in range(WRITERS)]
    assert {one.result() for one in together(store, works)} == {1}


def test_a_writer_that_fails_takes_back_its_own_changes_only(store: RegistryStore) -> None:
    def fails() -> None:
        with store.write() as connection:
            connection.exec_driver_sql("DELETE FROM state")
            raise ValueError("no")

    works = [registering(store, f"s{n}", text_of(record(f"f{n}:long"))) for n in range(WRITERS)]
    works[3] = works[7] = fails
    found = together(store, works)
    assert [type(one.exception()) for one in found].count(ValueError) == 2
    names = RegistryReader(store, SchemaCache()).subjects(":*:", VersionFilter())
    assert len(names) == WRITERS - 2
    assert store.revision() > 0


def test_a_writer_that_leaves_the_queue_keeps_nobody_waiting(store: RegistryStore) -> None:
    """As a signal does that interrupts it there: the writer before it counted on it."""
    store._queued += 1
    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(registering(store, "s", text_of(record("id:long"))))
        until(lambda: store._group is not None and store._group.members == 1)
        store._queued -= 1
        assert first.result() == 1
    assert registering(store, "t", text_of(record("id:string")))() == 2


def test_a_refusal_changes_nothing(store: RegistryStore) -> None:
    registering(store, "s", text_of(record("id:long")))()
    before = store.revision()
    with pytest.raises(RefusedError, match="incompatible"):
        registering(store, "s", text_of(record("id:string")))()
    assert store.revision() == before


def test_no_writer_of_a_group_returns_if_its_commit_fails(
    store: RegistryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(group: WriteGroup) -> None:
        group.abandon()
        raise OperationalError("COMMIT", {}, Exception("database or disk is full"))

    works = [registering(store, f"s{n}", text_of(record(f"f{n}:long"))) for n in range(WRITERS)]
    with monkeypatch.context() as patch:
        patch.setattr(WriteGroup, "commit", full)
        with ThreadPoolExecutor(WRITERS) as pool:
            found = [pool.submit(work) for work in works]
        assert all(isinstance(one.exception(), OperationalError) for one in found)
    assert RegistryReader(store, SchemaCache()).subjects(":*:", VersionFilter()) == []
    assert works[0]() == 1


def test_writers_of_one_thread_are_committed_together(
    store: RegistryStore, commits: list[int]
) -> None:
    registering(store, "a", text_of(record("x:int")))()
    commits.clear()
    before = store.revision()
    with store.together():
        with pytest.raises(RefusedError):  # the first one takes back everything, and no more
            registering(store, "a", text_of(record("x:int", "y:int")))()
        for name in ("b", "c"):
            registering(store, name, text_of(record(f"{name}:int")))()
        with pytest.raises(RefusedError):
            registering(store, "b", text_of(record("b:int", "z:int")))()
        assert store.revision() == before, "nothing is committed yet"
    assert commits == [2]
    assert store.revision() == before + 1
    reader = RegistryReader(store, SchemaCache())
    assert reader.subjects(":*:", VersionFilter()) == ["a", "b", "c"]


def test_writers_of_one_thread_have_one_savepoint(store: RegistryStore) -> None:
    """SQLite writes what savepoints that pile up hold to a temporary file, page by page."""

    with store.together():
        for name in ("a", "b", "c"):
            registering(store, name, text_of(record(f"{name}:int")))()
        with store.write() as connection:
            connection.exec_driver_sql("RELEASE SAVEPOINT member")
            with pytest.raises(OperationalError, match="no such savepoint"):
                connection.exec_driver_sql("RELEASE SAVEPOINT member")
            connection.exec_driver_sql("SAVEPOINT member")


def test_none_of_them_is_kept_if_the_commit_fails(
    store: RegistryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(group: WriteGroup) -> None:
        group.abandon()
        raise OperationalError("COMMIT", {}, OSError("disk full"))

    with monkeypatch.context() as patched:
        patched.setattr(WriteGroup, "commit", full)
        with pytest.raises(OperationalError, match="disk full"), store.together():
            registering(store, "a", text_of(record("x:int")))()
    registering(store, "b", text_of(record("x:int")))()
    assert RegistryReader(store, SchemaCache()).subjects(":*:", VersionFilter()) == ["b"]


@pytest.mark.parametrize("second", [None, text_of(record("x:int", "y:int=0"))])
def test_a_schema_that_was_not_committed_is_forgotten(
    store: RegistryStore, monkeypatch: pytest.MonkeyPatch, second: str | None
) -> None:
    """Another one gets its id; the first was parsed for its tags, or for a second version."""

    def full(group: WriteGroup) -> None:
        group.abandon()
        raise OperationalError("COMMIT", {}, OSError("disk full"))

    def fails() -> None:
        with store.together():
            form = DEFAULT_FORMAT if second else ResponseFormat(tags=("*",))
            registrar.register("a", first, who="me", response_format=form)
            if second:
                registrar.register("a", ProposedSchema(second), who="me")

    first, other = (ProposedSchema(text_of(record(one))) for one in ("x:int", "x:string"))
    registrar = Registrar(store, SchemaCache(), SchemaLimits())
    with monkeypatch.context() as patched:
        patched.setattr(WriteGroup, "commit", full)
        with pytest.raises(OperationalError, match="disk full"):
            fails()
    assert registrar.register("b", other, who="me")["id"] == 1
    assert not registrar.check("b", first, None).is_compatible
    assert registrar.check("b", other, None).is_compatible


def test_a_schema_of_a_member_that_failed_is_forgotten(
    store: RegistryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was taken back to its savepoint, and the next member's schema gets its id."""
    registrar = Registrar(store, SchemaCache(), SchemaLimits())
    first, other = (ProposedSchema(text_of(record(one))) for one in ("x:int", "x:string"))

    def interrupted(*given: Any) -> Any:
        version_entity(*given)
        raise ValueError("interrupted")

    with store.together():
        registrar.register("s", ProposedSchema(text_of(record("z:int"))), who="me")
        with monkeypatch.context() as patched:
            patched.setattr(f"{Registrar.__module__}.version_entity", interrupted)
            with pytest.raises(ValueError, match="interrupted"):
                registrar.add("a", first, who="me", response_format=ResponseFormat(tags=("*",)))
        assert registrar.register("b", other, who="me")["id"] == 2
    assert not registrar.check("b", first, None).is_compatible
    assert registrar.check("b", other, None).is_compatible


def test_looks_share_a_connection_until_one_fails(store: RegistryStore) -> None:
    with store.look() as one, store.look() as other:
        assert one is not other
    with store.looking():
        with store.look() as first:
            before = store.revision_in(first)
        assert not first.closed
        registering(store, "s", text_of(record("a:long")))()
        with store.look() as second:
            assert second is first
            assert store.revision_in(second) == before + 1, "it sees what is committed meanwhile"
        with pytest.raises(RefusedError), store.look() as third:
            raise RefusedError("perhaps the database is away")
        assert third.closed
        with store.look() as fourth:
            assert store.revision_in(fourth) == before + 1
    assert fourth.closed
    with ThreadPoolExecutor(1) as pool, store.looking(), store.look() as mine:

        def looks_elsewhere() -> bool:
            with store.look() as its_own:
                return its_own is not mine

        assert pool.submit(looks_elsewhere).result()


def test_a_shared_connection_that_cannot_be_closed_fails_nobody(
    store: RegistryStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    def close(_: Connection) -> None:
        raise OperationalError("ROLLBACK", {}, Exception("the database is away"))

    with store.looking():
        with store.look() as connection:
            assert store.revision_in(connection) == 0
        with monkeypatch.context() as patch:
            patch.setattr(Connection, "close", close)
            with pytest.raises(RefusedError, match="its own"), store.look():
                raise RefusedError("its own")
    connection.close()
    with store.looking(), store.look() as other:
        assert store.revision_in(other) == 0
