"""A crash between two batches of a spill sends no acknowledged message again."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from headworks._kafka.partitioner import KeylessPartitioner
from producer_sdk._outgoing_message import OutgoingMessage
from producer_sdk._spill import Spill, leftover_spills
from producer_sdk._spill_resender import _BATCH_MESSAGES, SpillResender

pytestmark = pytest.mark.e2e


class _Client:
    """A broker's client that acknowledges when it is told to."""

    def __init__(self) -> None:
        self.reports: list[Any] = []
        self.values: list[bytes] = []

    def produce(self, _topic: str, value: bytes, _key: Any, *, on_delivery: Any, **_: Any) -> None:
        self.values.append(value)
        self.reports.append(on_delivery)

    def acknowledge(self) -> None:
        reports, self.reports = self.reports, []
        for report in reports:
            report(None, None)


class _Counters:
    def open_counts(self, _topic: str, _window: int, _ids: Any) -> _Counters:
        return self

    def report(self, _error: Any, _message: Any) -> None:
        pass


def test_what_was_acknowledged_of_a_spill_is_not_sent_again_after_a_crash(tmp_path: Path) -> None:
    spill = Spill(tmp_path, limit=1 << 20)
    total = 2 * _BATCH_MESSAGES + 1
    for n in range(total):
        assert spill.append(OutgoingMessage("t", b"%d" % n, None, 0, None))
    client: Any = _Client()
    counters: Any = _Counters()
    resender = SpillResender(spill, (), client, KeylessPartitioner(), counters)

    for _ in range(2):  # read a batch, send it
        resender.resend()
        resender.resend()
        client.acknowledge()
    resender.resend()  # the third batch is read, and then the process dies

    spill._lock.acquire()  # nobody writes any more
    (tmp_path / "dead").mkdir()
    for path in tmp_path.glob("*.spill"):
        (tmp_path / "dead" / path.name).write_bytes(path.read_bytes())
    left = [m.value for found in leftover_spills(tmp_path / "dead") for m in found.read(total)]
    assert left == [b"%d" % n for n in range(2 * _BATCH_MESSAGES, total)]
    assert client.values[: 2 * _BATCH_MESSAGES] == [b"%d" % n for n in range(2 * _BATCH_MESSAGES)]
