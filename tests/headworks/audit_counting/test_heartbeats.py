"""Heartbeats: a process that counts says that it runs, and somebody says when it has ended."""

from __future__ import annotations

import io
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import fastavro
import pytest

from headworks._audit_counting import AUDIT_TOPIC
from headworks._audit_counting.counters import CounterFile
from headworks._audit_counting.event import AuditCount
from headworks._audit_counting.outcomes import CONSUMED
from headworks._audit_counting.reporting import AuditReporter
from headworks._kafka.cluster_identity import ClusterIdentity
from headworks.codec import event_type

pytestmark = pytest.mark.unit

SCHEMA = json.loads(event_type(AuditCount).schema)


class Broker:
    """Takes audit events, and acknowledges them when told to."""

    def __init__(self) -> None:
        self.heartbeats: list[tuple[str, dict[str, int]]] = []
        self.waiting: list[Callable[[object, object], None]] = []

    def find(self, _event: type) -> int:
        return 1

    def known(self) -> ClusterIdentity:
        return ClusterIdentity("c", frozenset())

    def send(self, value: bytes, on_delivery: Callable[[object, object], None]) -> bool:
        event: Any = fastavro.schemaless_reader(io.BytesIO(value[5:]), SCHEMA, None)
        if event["topic"] == AUDIT_TOPIC:
            self.heartbeats.append((event["id"], event["counts"]))
        self.waiting.append(on_delivery)
        return True

    def acknowledge(self, error: object = None) -> None:
        waiting, self.waiting = self.waiting, []
        for on_delivery in waiting:
            on_delivery(error, None)

    def reporter(self, folder: Path, every: float = 10.0) -> AuditReporter:
        this: Any = self
        return AuditReporter(
            folder, tier="t", application="a", ids=this, cluster=this, send=self.send, every=every
        )


def test_a_process_reports_that_it_runs_and_that_it_has_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker, counters = Broker(), CounterFile(tmp_path)
    reporter, name = broker.reporter(tmp_path), counters.path.stem
    assert reporter.report(counters) == 0  # it has counted nothing
    assert reporter.may_remove(counters)
    counters.count("t", 0, 5, CONSUMED)
    assert reporter.report(counters) == 2
    assert not reporter.report_end(counters)  # its counts are not published yet
    broker.acknowledge()
    assert reporter.report(counters) == 0
    assert broker.heartbeats == [(name, {"running": 60})]
    later = time.monotonic() + 61
    monkeypatch.setattr(time, "monotonic", lambda: later)
    assert reporter.report(counters) == 1
    assert not reporter.may_remove(counters)  # the end is not acknowledged yet
    assert reporter.report_end(counters)
    assert not reporter.report_end(counters)
    broker.acknowledge("no broker")
    assert not reporter.may_remove(counters)
    assert reporter.report_end(counters)
    broker.acknowledge()
    assert reporter.may_remove(counters)
    ended = (name, {"ended": 1})
    assert broker.heartbeats[1:] == [(name, {"running": 60}), ended, ended]
    counters.close()


def test_a_successor_ends_a_killed_process_after_its_counts_are_published(tmp_path: Path) -> None:
    broker, killed = Broker(), CounterFile(tmp_path)
    killed.count("t", 0, 5, CONSUMED)
    broker.reporter(tmp_path, every=300).report(killed)
    killed.close()
    successor, own = broker.reporter(tmp_path), CounterFile(tmp_path)
    broker.waiting.clear()  # nothing of the killed process was acknowledged
    assert successor.report_leftovers(own) == 1
    assert broker.heartbeats == [(killed.path.stem, {"running": 300})]
    broker.acknowledge()
    assert successor.report_leftovers(own) == 1
    assert broker.heartbeats[1:] == [(killed.path.stem, {"ended": 1})]
    broker.acknowledge()
    assert successor.report_leftovers(own) == 0
    successor.close()
    assert not killed.path.exists()
