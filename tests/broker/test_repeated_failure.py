"""A repeated failure is logged when it begins, once a minute, and when it is over."""

from __future__ import annotations

import logging

import pytest

from headworks._broker.repeated_failure import RepeatedFailure

pytestmark = pytest.mark.unit

_log = logging.getLogger(__name__)


def test_an_outage_is_logged_three_times(
    caplog: pytest.LogCaptureFixture,
) -> None:
    now = 0.0
    outage = RepeatedFailure(_log, "the thing", clock=lambda: now)
    outage.recovered({})
    assert not outage.ongoing
    for second in range(100):
        now = float(second)
        outage.failed(OSError("full"), {"topic": "t"})
    assert outage.ongoing
    outage.recovered({"topic": "t"})
    outage.recovered({"topic": "t"})
    assert not outage.ongoing
    assert caplog.messages == [
        "the thing: full",
        "the thing, 61 times in 60 s: full",
        "the thing: over after 99.0 s; it failed 100 times",
    ]
    assert {record.__dict__["topic"] for record in caplog.records} == {"t"}


def test_an_intermittent_failure_is_logged_once_a_minute(
    caplog: pytest.LogCaptureFixture,
) -> None:
    now = 0.0
    outage = RepeatedFailure(_log, "the thing", clock=lambda: now)
    for second in range(0, 90, 3):
        now = float(second)
        outage.failed(OSError("full"), {})
        assert outage.ongoing
        now += 1
        outage.recovered({})
        assert not outage.ongoing
    assert (
        caplog.messages == ["the thing: full", "the thing: over after 1.0 s; it failed 1 times"] * 2
    )
