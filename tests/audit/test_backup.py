"""Restoring an audit store onto an empty machine, with the commands of docs/backup.md."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from headworks._audit import queries
from headworks._audit.increments import CountedRange, Increment
from headworks._audit.reader import read_ledger
from headworks._audit.reconciler import Reconciler
from headworks._audit.store import AuditStore
from headworks._cli.stack.stack import RunningStack
from headworks.errors import CorruptError
from tests.audit.test_store import increment
from tests.audit.topic import publish
from tests.procedures import commands_of, run
from tests.registry.postgresql import running_cluster
from tests.tools import needs, postgresql

pytestmark = pytest.mark.e2e

COPY_STORE, RESTORE_STORE = commands_of("Audit store")
DUMP, RESTORE_DUMP = commands_of("Audit store in PostgreSQL")


def counts(topic: str, n: int) -> list[Increment]:
    ranges = (CountedRange(0, 0, n),)
    return [
        increment(topic, "producer", 1, {"attempted": n, "delivered": n}, sent_at=5_000),
        increment(topic, "hadoop", 1, {"loaded": n}, sent_at=9_000, commit=3, ranges=ranges),
    ]


@pytest.mark.parametrize("copied", [True, False])
def test_an_audit_store_on_an_empty_machine(
    stack: RunningStack, tmp_path: Path, copied: bool
) -> None:
    data, copy, other = tmp_path / "data", tmp_path / "copy", tmp_path / "other"
    data.mkdir()
    copy.mkdir()
    topic = f"copied-{copied}"
    lose(
        stack, f"sqlite:///{data / 'audit.db'}", topic, partial(run, COPY_STORE, **here(data, copy))
    )
    if copied:
        run(RESTORE_STORE, **here(other, copy))
    other.mkdir(exist_ok=True)
    must_continue(stack, f"sqlite:///{other / 'audit.db'}", topic, copied=copied)


def test_an_audit_store_in_the_place_of_the_lost_one(stack: RunningStack, tmp_path: Path) -> None:
    """The file that counts commits knows of more than the copy has, so it must go too."""
    data, copy = tmp_path / "data", tmp_path / "copy"
    data.mkdir()
    copy.mkdir()
    store = data / "audit.db"
    lose(stack, f"sqlite:///{store}", "in-place", partial(run, COPY_STORE, **here(data, copy)))
    shutil.copy(copy / "audit.db", store)
    with pytest.raises(CorruptError, match="or an old copy"):
        AuditStore(f"sqlite:///{store}")
    run(RESTORE_STORE, **here(data, copy))
    must_continue(stack, f"sqlite:///{store}", "in-place", copied=True)


@needs("postgresql")
def test_an_audit_store_in_an_empty_database(
    stack: RunningStack, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", f"{postgresql()}{os.pathsep}{os.environ['PATH']}")
    with running_cluster() as cluster:
        first, second = cluster.new_store(), cluster.new_store()
        lose(stack, first, "database", partial(run, DUMP, COPY=tmp_path, STORE=first))
        run(RESTORE_DUMP, COPY=tmp_path, STORE=second)
        must_continue(stack, second, "database", copied=True)


def here(data: Path, copy: Path) -> dict[str, Path]:
    return {"DATA": data, "COPY": copy}


def lose(stack: RunningStack, address: str, topic: str, copy: Callable[[], None]) -> None:
    """Count in a store, which is copied meanwhile."""
    publish(stack, counts(f"before-{topic}", 10))
    store = AuditStore(address)
    with Reconciler(stack.broker.address, stack.registry.url, store) as reconciler:
        reconciler.catch_up()
        copy()
        publish(stack, counts(f"after-{topic}", 7))
        reconciler.catch_up()
    store.close()


def must_continue(stack: RunningStack, address: str, topic: str, *, copied: bool) -> None:
    """A reconciler on the restored store ends with the sums that the topic has."""
    servers = stack.broker.address, stack.registry.url
    restored = AuditStore(address)
    with Reconciler(*servers, restored) as reconciler:
        assert (reconciler.catch_up() == 2) is copied, "it continues where the copy ends"
    naive = read_ledger(*servers).balances("hadoop")
    assert [row.counts for row in naive] == [
        row.counts for row in queries.balances(restored, "hadoop")
    ]
    assert {row.topic: row.accounted for row in naive}[f"after-{topic}"] == 7
    restored.close()
