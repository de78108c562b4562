"""The audit topic of a real broker, followed: restarts, kills, rivals, nonsense, commands."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
import urllib.request
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient

from headworks._audit import queries
from headworks._audit.increments import CountedRange, Increment
from headworks._audit.reader import audit_consumer, read_ledger, watermarks
from headworks._audit.reconciler import Reconciler
from headworks._audit.store import AuditStore
from headworks._audit.store.evidence import last_hole
from headworks._audit_counting import AUDIT_TOPIC
from headworks._cli.stack.stack import RunningStack, running_audit, running_stack
from headworks.errors import UsageError
from tests.audit.test_store import increment
from tests.audit.topic import publish
from tests.command_line import run_command
from tests.damage import batches, flip_bit
from tests.waiting import until

pytestmark = pytest.mark.e2e


def sent(topic: str, n: int, window: int = 1) -> Increment:
    return increment(topic, "producer", window, {"attempted": n, "delivered": n}, sent_at=5_000)


def loaded(topic: str, n: int, window: int = 1) -> Increment:
    ranges = (CountedRange(0, 0, n),)
    return increment(topic, "hadoop", window, {"loaded": n}, sent_at=9_000, commit=3, ranges=ranges)


def sums(store: AuditStore) -> dict[str, tuple[int, int, int]]:
    rows = queries.topic_sums(store, "hadoop")
    return {row.topic: (row.delivered, row.missing, row.surplus) for row in rows}


def headworks(stack: RunningStack, *arguments: str, env: dict[str, str] | None = None) -> Any:
    at = {"HEADWORKS_BOOTSTRAP": stack.broker.address, "HEADWORKS_REGISTRY": stack.registry.url}
    at["HEADWORKS_DATA_DIR"] = str(stack.data_dir)
    return run_command(*arguments, env=at | (env or {}))


@pytest.fixture(scope="module", autouse=True)
def topic(stack: RunningStack) -> None:
    copies = [sent("a", 10), sent("a", 5, 2)]
    publish(stack, [*copies, loaded("a", 10), *copies, loaded("a", 4, 2)])


def test_a_restart_reads_on_and_two_reconcilers_do_not_count_twice(
    stack: RunningStack, tmp_path: Path
) -> None:
    store = AuditStore(f"sqlite:///{tmp_path / 'audit.db'}")
    address = stack.broker.address, stack.registry.url
    with Reconciler(*address, store) as one, Reconciler(*address, store) as two:
        assert one.catch_up() == 4
        assert two.catch_up() == 0
        publish(stack, [sent("b", 7)])
        assert two.catch_up() == 1
        assert one.catch_up() == 0
    assert sums(store) == {"a": (15, 1, 0), "b": (7, 7, 0)}
    with Reconciler(*address, store) as again:
        assert again.catch_up() == 0
        publish(stack, [loaded("b", 7)])
        assert again.catch_up() == 1
    assert sums(store) == {"a": (15, 1, 0), "b": (7, 0, 0)}
    naive = read_ledger(*address).balances("hadoop")
    stored = queries.balances(store, "hadoop")
    assert [row.counts for row in naive] == [row.counts for row in stored]
    store.close()


def test_clock_skew_is_measured_on_live_increments_only(
    stack: RunningStack, tmp_path: Path
) -> None:
    store = AuditStore(f"sqlite:///{tmp_path / 'audit.db'}")
    with Reconciler(stack.broker.address, stack.registry.url, store) as reconciler:
        reconciler.catch_up()
        assert {one.lag_ms for one in queries.sources(store)} == {None}, "that was history"
        stop = threading.Event()
        follower = threading.Thread(target=reconciler.follow, args=(stop,))
        follower.start()
        try:
            publish(stack, [sent("clocks", 7)])
            until(lambda: any(one.lag_ms is not None for one in queries.sources(store)))
        finally:
            stop.set()
            follower.join()
    store.close()


def test_a_store_of_another_cluster_is_refused(stack: RunningStack, tmp_path: Path) -> None:
    from sqlalchemy import update

    from headworks._audit.store import tables

    store = AuditStore(f"sqlite:///{tmp_path / 'audit.db'}")
    Reconciler(stack.broker.address, stack.registry.url, store).close()
    with store.write() as connection:
        connection.execute(update(tables.facts).values(value="another"))
    with pytest.raises(UsageError, match="cluster another"):
        Reconciler(stack.broker.address, stack.registry.url, store)
    store.close()


def test_the_service_survives_kills_and_shows_metrics(stack: RunningStack, tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'audit.db'}"
    address = {"broker": stack.broker.address, "registry": stack.registry.url}
    store = AuditStore(url)
    window = int(time.time()) // 600  # a running service forgets windows of 1970
    for n in range(3):
        with running_audit(tmp_path, **address, store=url) as service:
            publish(stack, [sent(f"k{n}", 3, window), loaded(f"k{n}", 3, window)])
            until(lambda n=n: sums(store).get(f"k{n}") == (3, 0, 0))  # type: ignore[misc]
            if n < 2:
                os.kill(service.process.pid, signal.SIGKILL)
                continue
            seen = ""

            def scraped() -> bool:
                nonlocal seen
                with urllib.request.urlopen(f"{service.url}/metrics") as answer:
                    seen = answer.read().decode()
                told = 'headworks_audit_messages{state="loaded",tier="hadoop"}' in seen
                return told and "headworks_audit_behind_messages 0.0" in seen

            until(scraped)
            assert service.stop(60) == 0
    assert queries.holes(store).missed == 0
    store.close()


def test_status_explain_and_their_exit_codes(stack: RunningStack) -> None:
    done = headworks(stack, "audit", "status", "--topic", "a", "--format", "json")
    assert done.returncode == 1, done.stderr
    answer = json.loads(done.stdout)
    assert answer["total"]["lost"] == 1
    assert [row["completeness"] for row in answer["rows"]] == [1.0, 0.8]
    assert headworks(stack, "audit", "status", "--topic", "a", "--sla", "80").returncode == 0
    late = headworks(stack, "audit", "status", "--topic", "a", "--until", "1970-01-01T00:20Z")
    assert late.returncode == 0, late.stderr
    assert "100.0000%" in late.stdout
    assert not (stack.data_dir / "audit.db").exists()  # asking leaves nothing behind
    told = headworks(stack, "audit", "explain", "a", "1970-01-01T00:25Z")
    assert told.returncode == 0, told.stderr
    assert "0: 0-3" in told.stdout
    assert "1 lost" in told.stderr
    assert headworks(stack, "audit", "explain", "nobody", "1970-01-01").returncode == 2
    unheard = headworks(stack, "audit", "status", "--tier", "consumer:typo")
    assert unheard.returncode == 2
    assert "tiers that have: hadoop, producer" in unheard.stderr
    assert headworks(stack, "audit", "status", "--since", "yesterday").returncode == 2


def test_status_fails_for_messages_that_a_consumer_should_have_read(stack: RunningStack) -> None:
    window = int(time.time()) // 600 - 6
    read = increment("due", "consumer:g", window, {"consumed": 3}, sent_at=9_000)
    publish(stack, [sent("due", 5, window), read])
    status = ("audit", "status", "--tier", "consumer:g", "--topic")
    done = headworks(stack, *status, "due")
    assert done.returncode == 1, done.stdout
    assert "due at consumer:g: 2 of 5 messages still wait to be read there" in done.stderr


def test_status_prints_a_surplus_and_exits_0(stack: RunningStack) -> None:
    window = int(time.time()) // 600 - 6
    publish(stack, [sent("more", 5, window), loaded("more", 7, window)])
    done = headworks(stack, "audit", "status", "--topic", "more")
    assert done.returncode == 0, done.stderr
    assert "surplus: more at hadoop: 2 more messages than producers reported (5)" in done.stderr
    assert "Exit 0" in headworks(stack, "audit", "status", "--help").stdout


def test_wait_ends_when_the_table_is_complete_and_says_why_it_is_not(stack: RunningStack) -> None:
    wait = ("audit", "wait", "a", "--timeout", "0s", "--until")
    done = headworks(stack, *wait, "1970-01-01T00:20Z")
    assert (done.returncode, done.stderr) == (0, "a is complete up to 1970-01-01T00:20:00Z\n")
    short = headworks(stack, *wait, "1970-01-01T00:30Z")
    assert short.returncode == 1
    assert "1 of 5 messages are missing (0 waiting, 1 lost" in short.stderr
    assert headworks(stack, *wait, "1970-01-01T00:30Z", "--sla", "80").returncode == 0
    early = headworks(stack, *wait, "2999-01-01", "--since", "2998-01-01")
    assert early.returncode == 1
    assert "a may still grow" in early.stderr
    assert "complete" not in early.stderr


def test_wait_and_explain_say_what_no_table_will_have(stack: RunningStack) -> None:
    counts = {"attempted": 9, "delivered": 4, "dropped:queue_full": 5}
    some = increment("full", "producer", 1, counts, sent_at=9_000)
    publish(stack, [some, loaded("full", 4, 1)])
    done = headworks(stack, "audit", "wait", "full", "--until", "1970-01-01T00:20Z")
    assert done.returncode == 0, done.stderr
    assert "its producers dropped or gave up 5 more messages, which no table will" in done.stderr
    window = headworks(stack, "audit", "explain", "full", "1970-01-01T00:10Z")
    assert "5 dropped; what was sent had arrived at 1970-" in window.stderr
    assert "complete" not in window.stderr


def test_unreadable_messages_are_recorded_and_the_rest_is_counted(
    stack: RunningStack, tmp_path: Path
) -> None:
    before = time.time() * 1000
    publish(stack, [b"nonsense", sent("z", 2), loaded("z", 2)])
    store = AuditStore(f"sqlite:///{tmp_path / 'audit.db'}")
    with Reconciler(stack.broker.address, stack.registry.url, store) as one:
        one.catch_up()
    assert sums(store)["z"] == (2, 0, 0)
    assert queries.holes(store).unreadable == 1
    assert before - 1 <= last_hole(store) <= time.time() * 1000
    store.close()
    done = headworks(stack, "audit", "status", "--topic", "z")
    assert done.returncode == 1
    assert "1 messages of the audit topic are no audit events" in done.stderr


def test_a_damaged_batch_is_missed_and_ends_nothing(stack: RunningStack, tmp_path: Path) -> None:
    before = time.time() * 1000
    for attempt in range(5):
        rot = f"rot-away-{attempt}"
        publish(stack, [sent(rot, 7)])
        publish(stack, [sent(f"after-{attempt}-{n}", 3) for n in range(40)])
        logs = stack.data_dir.rglob(f"{AUDIT_TOPIC}-*/*.log")
        (path,) = (path for path in logs if rot.encode() in path.read_bytes())
        data = path.read_bytes()
        (rotten,) = (b for b in batches(path) if rot.encode() in data[b.position :][: b.size])
        flip_bit(path, rotten)
        address = f"sqlite:///{tmp_path / f'audit-{attempt}.db'}"
        ended = catch_up_in_a_process(stack, address)
        if ended != -signal.SIGABRT:
            break
        flip_bit(path, rotten)  # after a wrong CRC, librdkafka aborts with some bytes: take others
    assert ended == 0

    store = AuditStore(address)
    found = sums(store)
    assert rot not in found
    assert all(found[f"after-{attempt}-{n}"] == (3, 3, 0) for n in range(40))
    assert queries.holes(store).missed == rotten.record_count
    assert before - 1 <= last_hole(store) <= time.time() * 1000
    store.close()


def test_a_backlog_and_a_cut_topic_are_no_evidence(tmp_path: Path) -> None:
    with running_stack(tmp_path / "cut") as stack:
        address = stack.broker.address, stack.registry.url
        store = AuditStore(f"sqlite:///{tmp_path / 'kept.db'}")
        publish(stack, [sent("a", 1), sent("b", 1)])
        clock = [1_000.0]
        with Reconciler(*address, store, now=lambda: clock[0]) as one:
            one.catch_up()
            assert (one.read_until, last_hole(store)) == (1_000_000, 0)
            publish(stack, [sent("c", 1)])
            clock[0] = 2_000.0
            one._refresh_ends()
            assert one.read_until == 1_000_000  # the end is known, and not reached
            one.catch_up()
            assert one.read_until == 2_000_000
            clock[0] = 2_500.0
            with patch("headworks._audit.reconciler.watermarks", return_value={}):
                one._refresh_ends()  # it may not read the topic any more
                assert one.read_until == 2_000_000
        publish(stack, [sent("lost", 1)], partition=0)
        cut(stack.broker.address)
        before = time.time() * 1000
        publish(stack, [sent("d", 1)], partition=0)
        with Reconciler(*address, store, now=lambda: 3_000.0) as one:
            one.catch_up()
        assert queries.holes(store).missed == 1
        # The first message after the hole is newer than this reconciler's clock.
        assert last_hole(store) >= before - 60_000
        store.close()
        new = AuditStore(f"sqlite:///{tmp_path / 'new.db'}")
        with Reconciler(*address, new) as one:
            one.catch_up()
        assert before - 60_000 <= last_hole(new) <= time.time() * 1000
        new.close()


def cut(bootstrap: str) -> None:
    """Delete all messages of the audit topic."""
    consumer = audit_consumer(bootstrap, "error")
    marks = watermarks(consumer, bootstrap)
    consumer.close()
    admin = AdminClient({"bootstrap.servers": bootstrap})
    ends = [TopicPartition(AUDIT_TOPIC, p, high) for p, (_, high) in marks.items() if high]
    for done in admin.delete_records(ends).values():
        done.result(60)


def catch_up_in_a_process(stack: RunningStack, address: str) -> int:
    """Read the audit topic into a new store in a process of its own; return its exit code."""
    code = (
        "from headworks._audit.reconciler import Reconciler\n"
        "from headworks._audit.store import AuditStore\n"
        f"store = AuditStore({address!r})\n"
        f"with Reconciler({stack.broker.address!r}, {stack.registry.url!r}, store) as one:\n"
        "    one.catch_up()\n"
        "store.close()\n"
    )
    return subprocess.run([sys.executable, "-P", "-c", code], check=False).returncode
