"""Restoring an audit store onto an empty machine, by the commands of docs/backup.md."""

from __future__ import annotations

from pathlib import Path

import pytest

from headworks._audit import queries
from headworks._audit.increments import CountedRange, Increment
from headworks._audit.reader import read_ledger
from headworks._audit.reconciler import Reconciler
from headworks._audit.store import AuditStore
from headworks._cli.stack.stack import RunningStack
from tests.audit.test_store import increment
from tests.audit.topic import publish
from tests.procedures import commands_of, run

pytestmark = pytest.mark.e2e

COPY_STORE, RESTORE_STORE = commands_of("Audit store")


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
    address = stack.broker.address, stack.registry.url
    publish(stack, counts(f"before-{copied}", 10))
    store = AuditStore(f"sqlite:///{data / 'audit.db'}")
    with Reconciler(*address, store) as reconciler:
        reconciler.catch_up()
        run(COPY_STORE, DATA=data, COPY=copy)
        publish(stack, counts(f"after-{copied}", 7))
        reconciler.catch_up()
    store.close()

    if copied:
        run(RESTORE_STORE, DATA=other, COPY=copy)
    other.mkdir(exist_ok=True)
    restored = AuditStore(f"sqlite:///{other / 'audit.db'}")
    with Reconciler(*address, restored) as reconciler:
        assert (reconciler.catch_up() == 2) is copied, "it continues where the copy ends"
    naive = read_ledger(*address).balances("hadoop")
    assert [row.counts for row in naive] == [
        row.counts for row in queries.balances(restored, "hadoop")
    ]
    assert {row.topic: row.accounted for row in naive}[f"after-{copied}"] == 7
    restored.close()
