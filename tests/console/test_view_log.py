"""The log says who looked at which messages, without what the messages say."""

from __future__ import annotations

import logging

import pytest
from starlette.requests import Request

from headworks._console.app.view_log import ViewLog, offsets_text
from headworks._console.app.visibility import ALL_VISIBLE
from headworks._console.sources.shown_message import ShownMessage

pytestmark = pytest.mark.unit

HOUR = 3600.0


def shown(partition: int, offset: int) -> ShownMessage:
    return ShownMessage(partition, offset, 0, "secret-key", (), 1, 1, 1, {"a": "secret"}, None)


def request(query: str = "", *, renewal: bool = False) -> Request:
    headers = [(b"hx-request", b"true")] if renewal else []
    made = Request(
        {
            "type": "http",
            "method": "GET",
            "path": "/topics/t/messages",
            "query_string": query.encode(),
            "headers": headers,
            "client": ("10.0.0.7", 5000),
            "server": ("console", 80),
            "scheme": "http",
        }
    )
    made.state.visibility = ALL_VISIBLE
    return made


def test_a_line_names_the_reader_the_topic_and_the_offsets(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    rows = [shown(0, 12), shown(1, 4), shown(0, 14)]
    ViewLog().note(request("find=secret"), "t", rows, filtered=True)
    (record,) = caplog.records
    assert record.getMessage() == ("anonymous@10.0.0.7 looked at 3 messages of 't': 0:12-14 1:4-4")
    assert record.__dict__["filtered"] is True
    assert "secret" not in str(record.__dict__)


def test_renewals_are_recorded_once_an_hour_and_requests_each_time(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    now = [0.0]
    log = ViewLog(clock=lambda: now[0])

    def lines(one: Request) -> int:
        caplog.clear()
        log.note(one, "t", [shown(0, 1)], filtered=False)
        return len(caplog.records)

    assert lines(request()) == 1
    now[0] += 5
    assert lines(request(renewal=True)) == 0
    assert lines(request("offset=7&partition=0", renewal=True)) == 1  # another page
    assert lines(request()) == 1
    now[0] += HOUR
    assert lines(request(renewal=True)) == 1
    assert lines(request(renewal=True)) == 0


def test_no_messages_are_said_to_be_none() -> None:
    assert offsets_text([]) == "none"
