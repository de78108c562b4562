"""Several servers on one store, servers that are killed, servers that come back."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from urllib3.exceptions import HTTPError

from headworks.service import Service
from tests.registry.conftest import start_registry
from tests.registry.rest import Reply, Rest, record


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[tuple[Rest, Rest]]:
    """Two server processes on one SQLite file."""
    with ExitStack() as running:
        urls = [running.enter_context(start_registry(tmp_path)).url for _ in range(2)]
        yield Rest(urls[0]), Rest(urls[1])


def test_concurrent_registrations_on_two_servers(pair: tuple[Rest, Rest]) -> None:
    for server in pair[:1]:
        server("PUT", "/config", {"compatibility": "NONE"})
    workers, schemas, subjects = 16, 12, 3
    barrier = threading.Barrier(workers)

    def register(worker: int) -> list[tuple[str, int, Reply]]:
        barrier.wait()
        # Every schema goes to every subject, several times, in another order for each worker.
        work = [
            (f"s{(worker + i) % subjects}", (worker * 5 + i) % schemas)
            for i in range(subjects * schemas)
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
    waited = threading.Event()
    for _ in range(50):
        if there("GET", f"/schemas/ids/{schema_id}").status == 404:
            return
        waited.wait(0.1)
    raise AssertionError("the other server still answers with a schema that is gone")


def test_kill_during_registrations_loses_nothing_acknowledged(tmp_path: Path) -> None:
    acknowledged: dict[tuple[str, int], int] = {}

    def register(server: Service, worker: int, from_: int) -> None:
        client = Rest(server.url)
        try:
            for n in range(from_, from_ + 10_000):
                body = client.register(f"s{worker}", record(f"w{worker}n{n}:int=0")).body
                acknowledged[f"s{worker}", body["version"]] = body["id"]
        except HTTPError:
            return

    for life in range(3):
        server = start_registry(tmp_path)
        Rest(server.url)("PUT", "/config", {"compatibility": "NONE"})
        threads = [
            threading.Thread(target=register, args=(server, worker, life * 10_000))
            for worker in range(4)
        ]
        for thread in threads:
            thread.start()
        threads[0].join(0.7)
        server.kill()
        for thread in threads:
            thread.join()
    assert len(acknowledged) > 12
    with start_registry(tmp_path) as server:
        client = Rest(server.url)
        entities: list[dict[str, Any]] = []
        while page := client("GET", f"/schemas?subjectPrefix=s&offset={len(entities)}").body:
            entities += page
        kept = {(one["subject"], one["version"]): one["id"] for one in entities}
        assert acknowledged.items() <= kept.items()
        assert len(set(kept.values())) == len(kept)
        for subject in client("GET", "/subjects").body:
            numbers = client("GET", f"/subjects/{subject}/versions").body
            assert numbers == list(range(1, len(numbers) + 1))
        log = client("GET", "/audit?subject=s0").body
        assert len([one for one in log if one["action"] == "register"]) == len(
            [key for key in kept if key[0] == "s0"]
        )


def test_a_restart_keeps_everything(tmp_path: Path) -> None:
    with start_registry(tmp_path) as server:
        client = Rest(server.url)
        first = client.register("s", record("a:int")).body
        client("PUT", "/config/s", {"compatibility": "FULL", "policy": "strict"})
        client("PUT", "/mode", {"mode": "READONLY"})
        code = server.stop()
    assert code == 0
    with start_registry(tmp_path) as server:
        client = Rest(server.url)
        assert client("GET", "/subjects/s/versions/1").body == {"subject": "s", **first}
        found = client("GET", "/config/s").body
        assert found == {"compatibilityLevel": "FULL", "policy": "strict"}
        assert client("GET", "/mode").body == {"mode": "READONLY"}
