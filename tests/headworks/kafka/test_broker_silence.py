"""Brokers that do not answer, as librdkafka's statistics show them."""

from __future__ import annotations

import json
import logging
import time
from typing import Any

import pytest
from confluent_kafka import KafkaError

from headworks._kafka.broker_silence import silence
from headworks._kafka.trouble_log import BrokerTrouble

pytestmark = pytest.mark.unit


def broker(
    state: str, *, age: float = 100.0, received: float = -1e-6, waiting: int = 0, source: str = ""
) -> dict[str, Any]:
    times = {"stateage": int(age * 1e6), "rxidle": int(received * 1e6)}
    return {"state": state, **times, "waitresp_cnt": waiting, "source": source or "configured"}


def statistics(*brokers: dict[str, Any]) -> str:
    found = {"name": "x", "brokers": dict(enumerate(brokers)), "topics": {}}
    return json.dumps(found, separators=(",", ":"))


idle = broker("UP", received=50.0)
hung = broker("UP", received=7.0, waiting=1)
quick = broker("UP", received=0.2, waiting=3)
joining = broker("UP", received=90.0, waiting=1, source="logical")
unused = broker("INIT")


@pytest.mark.parametrize(
    ("found", "brokers"),
    [
        (None, []),
        (None, [unused, broker("DOWN"), broker("TRY_CONNECT")]),
        (None, [broker("APIVERSION_QUERY", age=4.0)]),
        (8.0, [broker("APIVERSION_QUERY", age=8.0, waiting=1)]),
        (20.0, [broker("CONNECT", age=20.0), unused]),
        (7.0, [hung, broker("CONNECT", age=20.0)]),
        (7.0, [hung, joining, unused]),
        (0.0, [hung, quick]),
        (0.0, [hung, idle]),
        (0.0, [hung, broker("UP", received=1.0, source="logical")]),
        (None, [joining]),
        (0.0, [idle, joining]),
        (6.0, [broker("UP", age=6.0, waiting=1)]),
    ],
)
def test_how_long_no_broker_has_answered(
    found: float | None, brokers: list[dict[str, Any]]
) -> None:
    assert silence(statistics(*brokers), 5.0) == found
    assert silence("{}", 5.0) is None


def test_two_statistics_in_a_row_report_a_silent_broker(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[str] = []
    trouble = BrokerTrouble("there:1", {"stats_cb": seen.append}, logging.getLogger("silent"))
    look = trouble.callbacks["stats_cb"]
    look(statistics(hung))
    look(statistics(quick))
    look(statistics(hung))
    assert trouble.down_since is None, "one may be of a process that stood still"
    now = time.monotonic()
    monkeypatch.setattr(time, "monotonic", lambda: now)
    look(statistics(hung))
    assert trouble.down_since == now - 7.0
    look(statistics(hung))
    assert caplog.messages == ["no broker at there:1 answers: requests have waited for 7 s"]
    assert not trouble.has_answered
    look(statistics(broker("APIVERSION_QUERY", age=1.0)))
    assert not trouble.has_answered, "a new connection proves nothing"
    look(statistics(quick))
    assert trouble.has_answered
    assert len(seen) == 7, "the user's own callback is called as well"


def test_a_broker_that_is_lost_has_not_answered(caplog: pytest.LogCaptureFixture) -> None:
    trouble = BrokerTrouble("there:1", {}, logging.getLogger("lost"))
    trouble.look(statistics(quick))
    assert not trouble.has_answered, "nothing was lost"
    trouble.report(KafkaError(KafkaError._ALL_BROKERS_DOWN))
    assert not trouble.has_answered
    assert caplog.messages == ["no broker at there:1 answers: requests have waited for too long"]


def test_a_lost_connection_is_logged_once_a_minute_for_debugging(
    caplog: pytest.LogCaptureFixture,
) -> None:
    trouble = BrokerTrouble("there:1", {}, logging.getLogger("lost"))
    with caplog.at_level(logging.DEBUG):
        for millis in range(20):
            text = f"there:1/bootstrap: Connection refused (after {millis}ms in state CONNECT)"
            trouble.report(KafkaError(KafkaError._TRANSPORT, text))
        trouble.report(KafkaError(KafkaError._RESOLVE, "there:1/bootstrap: Failed to resolve"))
    assert caplog.messages == [
        "brokers there:1: there:1/bootstrap: Connection refused",
        "brokers there:1: there:1/bootstrap: Failed to resolve",
    ]


@pytest.mark.parametrize(
    ("code", "text", "reason", "fix"),
    [
        (
            KafkaError._BAD_MSG,
            "Receive failed: Invalid response size 1213486160 (0..100000000): increase it",
            "an HTTP server is there, and no Kafka broker",
            "set `bootstrap` to the address of a broker",
        ),
        (
            KafkaError._AUTHENTICATION,
            "SASL authentication error: wrong (after 1004ms in state AUTH_REQ)",
            "SASL authentication error: wrong",
            "correct the security properties in `config`",
        ),
    ],
)
def test_what_keeps_brokers_from_answering_is_the_reason(
    code: int, text: str, reason: str, fix: str, caplog: pytest.LogCaptureFixture
) -> None:
    trouble = BrokerTrouble("there:1", {}, logging.getLogger("lost"))
    trouble.report(KafkaError(code, text))
    trouble.report(KafkaError(KafkaError._ALL_BROKERS_DOWN))
    assert caplog.messages == [
        f"brokers there:1: {reason}",
        f"no broker at there:1 answers: {reason}",
    ]
    assert trouble.fix == fix
