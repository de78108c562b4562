"""The audit topic is deleted and made again, and a leader tells an old end."""

from __future__ import annotations

import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from headworks._audit import queries
from headworks._audit.reader import watermarks
from headworks._audit.reconciler import Reconciler
from headworks._audit.results import Holes
from headworks._audit.store import AuditStore
from headworks._audit.store.evidence import last_hole
from headworks._audit_counting import AUDIT_TOPIC
from headworks._cli.stack.stack import RunningStack
from tests.audit.test_reconciler import sent, sums
from tests.audit.topic import publish
from tests.waiting import until

pytestmark = pytest.mark.e2e


def make_again(stack: RunningStack, partitions: int = 2) -> None:
    """Delete the audit topic, and create it."""
    admin = AdminClient({"bootstrap.servers": stack.broker.address})
    admin.delete_topics([AUDIT_TOPIC])[AUDIT_TOPIC].result(60)
    until(lambda: AUDIT_TOPIC not in admin.list_topics(timeout=60).topics)
    admin.create_topics([NewTopic(AUDIT_TOPIC, partitions)])[AUDIT_TOPIC].result(60)


def test_a_topic_that_was_made_again_is_read_from_its_first_message(
    stack: RunningStack, tmp_path: Path
) -> None:
    store = AuditStore(f"sqlite:///{tmp_path / 'audit.db'}")
    address = stack.broker.address, stack.registry.url
    before = [sent("before", 1), sent("before", 2), sent("before", 4)]
    publish(stack, [b"nonsense", *before], partition=0)
    with Reconciler(*address, store) as one, Reconciler(*address, store) as two:
        assert one.catch_up() == 3
        make_again(stack)
        # More messages than the old topic had: an offset beyond the old position exists again.
        longer = [sent("longer", n) for n in (8, 16, 32, 64)]
        publish(stack, [b"nonsense", before[0], *longer], partition=0)
        assert one.catch_up() == 4
        assert two.catch_up() == 0
        assert queries.holes(store) == Holes(unreadable=1, missed=1)  # at the same place
        make_again(stack)
        publish(stack, [sent("shorter", 128)], partition=0)
        assert two.catch_up() == 1
    with Reconciler(*address, store) as again:
        assert again.catch_up() == 0
    found = {topic: delivered for topic, (delivered, *_) in sums(store).items()}
    assert found == {"before": 7, "longer": 120, "shorter": 128}
    assert queries.holes(store) == Holes(unreadable=0, missed=2)
    assert last_hole(store) > 0, "what the old topics held unread is not known"
    store.close()


def test_a_topic_that_was_made_again_meanwhile_has_other_ends(
    stack: RunningStack, tmp_path: Path
) -> None:
    make_again(stack)
    store = AuditStore(f"sqlite:///{tmp_path / 'audit.db'}")
    publish(stack, [sent("old", 1), sent("old", 2)], partition=0)
    publish(stack, [sent("old", 4), sent("old", 8)], partition=1)
    with Reconciler(stack.broker.address, stack.registry.url, store) as one:
        ask = one._refresh_ends

        def asked_too_early() -> None:
            ask()
            make_again(stack, partitions=1)
            publish(stack, [sent("new", 16)], partition=0)
            one._needs_seek = True

        with patch.object(one, "_refresh_ends", side_effect=asked_too_early):
            assert one.catch_up() == 1
    assert sums(store) == {"new": (16, 16, 0)}
    store.close()


def test_an_old_end_is_asked_for_again(stack: RunningStack, tmp_path: Path) -> None:
    store = AuditStore(f"sqlite:///{tmp_path / 'audit.db'}")
    address = stack.broker.address, stack.registry.url
    publish(stack, [sent("end", 1), sent("end", 2)], partition=0)
    with Reconciler(*address, store) as one:
        one.catch_up()
    old: list[Any] = [{0: (0, 1)}]  # as a paused leader's, when it goes on

    late_seconds = 0.0

    def asked(*arguments: Any) -> Any:
        nonlocal late_seconds
        if not old:
            return watermarks(*arguments)
        late_seconds = 60.0  # the patience begins with the first answer
        return old.pop()

    clock = SimpleNamespace(
        monotonic=lambda: time.monotonic() + late_seconds, sleep=time.sleep, time=time.time
    )
    with (
        patch("headworks._audit.reconciler.time", clock),
        patch("headworks._audit.reconciler.watermarks", side_effect=asked),
        Reconciler(*address, store) as one,
    ):
        assert not old
        publish(stack, [sent("end", 4)], partition=0)
        assert one.catch_up() == 1
    assert sums(store)["end"] == (7, 7, 0)
    assert queries.holes(store).missed == 0
    store.close()
