"""Restoring a registry's store onto an empty machine, with the commands of docs/backup.md."""

from __future__ import annotations

import os
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from headworks.errors import UsageError
from tests.procedures import commands_of, run
from tests.registry.conftest import start_on
from tests.registry.postgresql import Cluster
from tests.registry.rest import Rest, record
from tests.tools import needs, postgresql

pytestmark = pytest.mark.e2e

COPY_FILE, RESTORE_FILE = commands_of("Registry store")
DUMP, RESTORE_DUMP = commands_of("PostgreSQL")
USER = {"type": "record", "name": "User", "fields": [{"name": "a", "type": "Address"}]}


def fill(rest: Rest) -> None:
    """Versions, references, contexts, settings, modes, and deletions."""
    assert rest.register("address", record("street:string", name="Address")).status == 200
    references = [{"name": "Address", "subject": "address", "version": 1}]
    assert rest.register("user", USER, references=references).status == 200
    for fields in (["a:int"], ["a:int", "b:int=0"], ["a:int", "c:int=0"]):
        assert rest.register("orders-value", record(*fields)).status == 200
    assert rest.register(":.eu:orders-value", record("a:long")).status == 200
    assert rest("DELETE", "/subjects/orders-value/versions/2").status == 200
    assert rest("PUT", "/config/orders-value", {"compatibility": "FULL"}).status == 200
    assert rest("PUT", "/mode/user", {"mode": "READONLY"}).status == 200


def see(rest: Rest) -> list[Any]:
    """Everything that a reader of the interface can see."""
    subjects = rest("GET", "/subjects?deleted=true").body
    asked = ["/subjects", "/subjects?deleted=true", "/schemas?deleted=true", "/contexts", "/audit"]
    asked += ["/config", "/config/orders-value", "/mode", "/mode/user"]
    for subject in subjects:
        numbers = rest("GET", f"/subjects/{subject}/versions?deleted=true").body
        for number in numbers:
            one = f"/subjects/{subject}/versions/{number}?deleted=true"
            found = rest("GET", one).body
            asked += [one, f"/schemas/ids/{found['id']}?subject={subject}"]
    return [rest("GET", path) for path in asked]


def must_continue(rest: Rest, lost_id: int) -> None:
    """An id that was given out after the copy is not given to another schema."""
    given = rest.register("orders-value", record("a:int", "after:int=0")).body["id"]
    assert given > lost_id
    assert rest("GET", f"/schemas/ids/{lost_id}").code == 40403
    text = record("a:int", "lost:int=0")
    assert rest("PUT", "/mode/orders-value?force=true", {"mode": "IMPORT"}).status == 200
    assert rest.register("orders-value", text, id=lost_id, version=9).body["id"] == lost_id


def test_a_file_on_an_empty_machine(tmp_path: Path) -> None:
    (tmp_path / "copy").mkdir()
    (tmp_path / "data").mkdir()
    places = {"DATA": tmp_path / "data", "COPY": tmp_path / "copy"}
    store = places["DATA"] / "registry.db"
    with start_on(f"sqlite:///{store}") as running:
        rest = Rest(running.url)
        fill(rest)
        before = see(rest)
        run(COPY_FILE, **places)
        lost = rest.register("orders-value", record("a:int", "lost:int=0")).body["id"]
    store.write_bytes(b"not a store, and longer than the head of one" * 100)
    with pytest.raises(UsageError, match=r"restore it \(docs/backup\.md\)"):
        start_on(f"sqlite:///{store}")
    for folder in ("data", "new machine"):
        data = tmp_path / folder
        run(RESTORE_FILE, **{**places, "DATA": data})
        with start_on(f"sqlite:///{data / 'registry.db'}") as running:
            rest = Rest(running.url)
            assert see(rest) == before
            must_continue(rest, lost)
    with sqlite3.connect(tmp_path / "new machine" / "registry.db") as store_of_new:
        assert store_of_new.execute("PRAGMA integrity_check").fetchone() == ("ok",)


@needs("postgresql")
def test_a_database_on_an_empty_machine(
    cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", f"{postgresql()}{os.pathsep}{os.environ['PATH']}")
    first = cluster.new_store()
    with start_on(first) as running:
        rest = Rest(running.url)
        fill(rest)
        before = see(rest)
        run(DUMP, COPY=tmp_path, STORE=first)
        lost = rest.register("orders-value", record("a:int", "lost:int=0")).body["id"]
    second = cluster.new_store()
    run(RESTORE_DUMP, COPY=tmp_path, STORE=second)
    with start_on(second) as running:
        rest = Rest(running.url)
        assert see(rest) == before
        must_continue(rest, lost)
