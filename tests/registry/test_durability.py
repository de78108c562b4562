"""Several servers on one store, servers that are killed, servers that come back; on every store."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import pytest
from urllib3.exceptions import HTTPError

from headworks._registry.store.database import RegistryStore
from headworks._registry.store.salvage import salvage_registry
from headworks._server.child_process import Service
from headworks.errors import UsageError
from tests.registry.conftest import start_on
from tests.registry.rest import Reply, Rest, record
from tests.waiting import until

pytestmark = pytest.mark.e2e


@pytest.fixture
def pair(store: str) -> Iterator[tuple[Rest, Rest]]:
    """Two server processes on one store."""
    with ExitStack() as running:
        servers = [Rest(running.enter_context(start_on(store)).url) for _ in range(2)]
        yield servers[0], servers[1]
        for server in servers:
            server.close()


def test_two_servers_make_a_new_store_at_the_same_time(store: str) -> None:
    with ThreadPoolExecutor(2) as pool, ExitStack() as running:
        servers = [running.enter_context(one) for one in pool.map(start_on, [store] * 2)]
        ids = [Rest(server.url).register("s", record("a:int")).body["id"] for server in servers]
        assert ids == [1, 1]


def test_a_new_file_is_made_a_store_by_many_at_once(tmp_path: Path) -> None:
    """SQLite refuses at once, and does not wait, when two turn to its write-ahead log."""
    openers = 4
    barrier = threading.Barrier(openers)

    def make(number: int) -> int:
        barrier.wait()
        database = RegistryStore(f"sqlite:///{tmp_path / f'{number}.db'}")
        revision = database.revision()
        database.close()
        return revision

    with ThreadPoolExecutor(openers) as pool:
        for number in range(20):
            assert list(pool.map(make, [number] * openers)) == [0] * openers


def test_a_file_that_another_program_turns_into_a_store_is_waited_for(tmp_path: Path) -> None:
    file = tmp_path / "r.db"
    file.touch()

    def turn() -> None:
        with closing(sqlite3.connect(file)) as other:
            other.execute("PRAGMA journal_mode=WAL")

    timer = threading.Timer(0.2, turn)
    timer.start()
    RegistryStore(f"sqlite:///{file}").close()
    timer.join()


def test_concurrent_registrations_on_two_servers(pair: tuple[Rest, Rest]) -> None:
    for server in pair[:1]:
        server("PUT", "/config", {"compatibility": "NONE"})
    workers, schemas, subjects = 64, 8, 3
    barrier = threading.Barrier(workers)

    def register(worker: int) -> list[tuple[str, int, Reply]]:
        barrier.wait()
        # Every schema goes to every subject, by several workers at once.
        work = [
            (f"s{(worker + i) % subjects}", (worker * 5 + i) % schemas)
            for i in range(0, subjects * schemas, 3)
        ]
        return [
            (subject, n, pair[worker % 2].register(subject, record(f"f{n}:int")))
            for subject, n in work
        ]

    with ThreadPoolExecutor(workers) as pool:
        replies = [one for found in pool.map(register, range(workers)) for one in found]
    assert {reply.status for _, _, reply in replies} == {200}
    ids: dict[int, set[int]] = {}
    versions: dict[str, dict[int, int]] = {}
    for subject, n, reply in replies:
        ids.setdefault(n, set()).add(reply.body["id"])
        assert (
            versions.setdefault(subject, {}).setdefault(n, reply.body["version"])
            == (reply.body["version"])
        )
    assert all(len(of_one) == 1 for of_one in ids.values())
    assert len(set.union(*ids.values())) == schemas
    for subject, of_subject in versions.items():
        assert sorted(of_subject.values()) == list(range(1, len(of_subject) + 1))
        for server in pair:
            assert len(server("GET", f"/subjects/{subject}/versions").body) == len(of_subject)


def test_a_deletion_on_one_server_is_seen_by_the_other(pair: tuple[Rest, Rest]) -> None:
    here, there = pair
    schema_id = here.register("s", record("a:int")).body["id"]
    assert there("GET", f"/schemas/ids/{schema_id}").status == 200
    here("DELETE", "/subjects/s")
    here("DELETE", "/subjects/s?permanent=true")
    assert here("GET", f"/schemas/ids/{schema_id}").code == 40403
    until(lambda: there("GET", f"/schemas/ids/{schema_id}").status == 404)


def test_a_kill_leaves_the_other_server_working(store: str) -> None:
    """One of two servers dies in the middle of registrations; the other never answers with 5xx."""
    statuses: list[int] = []
    acknowledged: list[tuple[str, int, int]] = []

    def register(server: Service, worker: int, count: int) -> None:
        client = Rest(server.url)
        for n in range(count):
            try:
                reply = client.register(f"s{worker % 4}", record(f"w{worker}n{n}:int=0"))
            except HTTPError:
                return
            statuses.append(reply.status)
            acknowledged.append((f"s{worker % 4}", reply.body["version"], reply.body["id"]))

    with start_on(store) as survivor, start_on(store) as victim:
        client = Rest(survivor.url)
        client("PUT", "/config", {"compatibility": "NONE"})
        work = [(survivor, n, 15) for n in range(4)] + [(victim, n, 10_000) for n in range(4, 8)]
        threads = [threading.Thread(target=register, args=one) for one in work]
        for thread in threads:
            thread.start()
        until(lambda: len(acknowledged) >= 16)
        victim.kill()
        for thread in threads:
            thread.join()
        assert set(statuses) == {200}
        kept = _every_version(client)
        assert {(s, v): i for s, v, i in acknowledged}.items() <= kept.items()
        assert len(set(kept.values())) == len(kept)
        for subject in client("GET", "/subjects").body:
            numbers = client("GET", f"/subjects/{subject}/versions").body
            assert numbers == list(range(1, len(numbers) + 1))


def _every_version(client: Rest) -> dict[tuple[str, int], int]:
    entities: list[dict[str, Any]] = []
    while page := client("GET", f"/schemas?subjectPrefix=s&offset={len(entities)}").body:
        entities += page
    return {(one["subject"], one["version"]): one["id"] for one in entities}


def test_kill_during_registrations_loses_nothing_acknowledged(store: str) -> None:
    acknowledged: dict[tuple[str, int], int] = {}

    def register(server: Service, worker: int, from_: int) -> None:
        client = Rest(server.url)
        try:
            for n in range(from_, from_ + 10_000):
                body = client.register(f"s{worker}", record(f"w{worker}n{n}:int=0")).body
                acknowledged[f"s{worker}", body["version"]] = body["id"]
        except HTTPError:
            return

    for life in range(2):
        server = start_on(store)
        Rest(server.url)("PUT", "/config", {"compatibility": "NONE"})
        threads = [
            threading.Thread(target=register, args=(server, worker, life * 10_000))
            for worker in range(4)
        ]
        for thread in threads:
            thread.start()
        until(lambda life=life: len(acknowledged) >= 20 * (life + 1))  # type: ignore[misc]
        server.kill()
        for thread in threads:
            thread.join()
    assert len(acknowledged) >= 40
    with start_on(store) as server:
        client = Rest(server.url)
        kept = _every_version(client)
        assert acknowledged.items() <= kept.items()
        assert len(set(kept.values())) == len(kept)
        for subject in client("GET", "/subjects").body:
            numbers = client("GET", f"/subjects/{subject}/versions").body
            assert numbers == list(range(1, len(numbers) + 1))
        log = client("GET", "/audit?subject=s0").body
        assert len([one for one in log if one["action"] == "register"]) == len(
            [key for key in kept if key[0] == "s0"]
        )


def test_a_restart_keeps_everything(store: str) -> None:
    with start_on(store) as server:
        client = Rest(server.url)
        first = client.register("s", record("a:int")).body
        client("PUT", "/config/s", {"compatibility": "FULL", "policy": "strict"})
        client("PUT", "/mode", {"mode": "READONLY"})
        code = server.stop(60)
    assert code == 0
    with start_on(store) as server:
        client = Rest(server.url)
        assert client("GET", "/subjects/s/versions/1").body == {"subject": "s", **first}
        found = client("GET", "/config/s").body
        assert found == {"compatibilityLevel": "FULL", "policy": "strict"}
        assert client("GET", "/mode").body == {"mode": "READONLY"}


def test_a_store_that_a_server_uses_is_not_salvaged(tmp_path: Path) -> None:
    store = f"sqlite:///{tmp_path / 'registry.db'}"
    with start_on(store) as server:
        rest = Rest(server.url)
        assert rest.register("s", record("a:int")).status == 200
        with pytest.raises(UsageError, match="another program has the store"):
            salvage_registry(store)
        assert rest.register("s", record("a:int", "b:int=0")).status == 200
        rest.close()
    assert salvage_registry(store).rows.rows["schemas"] == 2


def test_a_schema_that_lost_a_reference_leaves_a_salvaged_store_with_its_versions(
    tmp_path: Path,
) -> None:
    file = tmp_path / "registry.db"
    store = f"sqlite:///{file}"
    needs_base = {"type": "record", "name": "r", "fields": [{"name": "base", "type": "Base"}]}
    named = [{"name": "the-only-place", "subject": "base", "version": 1}]
    with start_on(store) as server:
        rest = Rest(server.url)
        assert rest.register("base", record("a:int", name="Base")).status == 200
        assert rest.register("user", needs_base, references=named).status == 200
        rest.close()
    content = file.read_bytes()
    assert content.count(b"the-only-place") == 1
    file.write_bytes(content.replace(b"the-only-place", b"the-onlyXplace"))
    found = salvage_registry(store)
    assert found.lost_versions == ["user version 1, id 2"]
    with start_on(store) as server:
        rest = Rest(server.url)
        assert rest("GET", "/subjects").body == ["base"]
        again = rest.register("user", needs_base, references=named)
        assert (again.status, again.body["id"] > 2) == (200, True), "ids are never used twice"
        rest.close()
