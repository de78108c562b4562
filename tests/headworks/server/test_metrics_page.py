"""The metrics page: exposure, and a time limit on slow clients."""

from __future__ import annotations

import socket
import time
import urllib.error
import urllib.request

import pytest

from headworks._server import metrics_page
from headworks._server.metrics_page import MetricsEndpoint, MetricsPage
from headworks.errors import UsageError

pytestmark = pytest.mark.e2e


def is_cut_off(slow: socket.socket) -> bool:
    """Return whether the server closes a connection that sends a byte now and then."""
    end = time.monotonic() + 60
    while time.monotonic() < end:
        try:
            slow.sendall(b"x")
        except OSError:
            return True
        time.sleep(0.1)
    return False


def test_a_slow_client_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    """A byte now and then meets the limit of each read, but not that of the request."""
    monkeypatch.setattr(metrics_page, "_REQUEST_SECONDS", 1.0)
    monkeypatch.setattr(metrics_page, "_MAX_REQUESTS", 1)
    page = MetricsPage(MetricsEndpoint("127.0.0.1", 0), lambda: b"up 1\n")
    try:
        host, port = page.address.split(":")
        with socket.create_connection((host, int(port)), 20) as slow:
            slow.sendall(b"GET /metrics HTTP/1.1\r\n")
            assert is_cut_off(slow)
        monkeypatch.setattr(metrics_page, "_REQUEST_SECONDS", 60.0)
        with urllib.request.urlopen(page.url, timeout=60) as answer:
            assert answer.read() == b"up 1\n"
    finally:
        page.stop()


def test_a_page_without_users_stays_on_loopback_unless_it_is_insecure() -> None:
    assert MetricsEndpoint.parse("127.0.0.1:0") == MetricsEndpoint("127.0.0.1", 0)
    assert MetricsEndpoint.parse("127.0.0.1:0", insecure=True).web_pages.any_host
    assert MetricsEndpoint.parse("10.0.0.5:9400", insecure=True).host == "10.0.0.5"
    with pytest.raises(UsageError, match="metrics page would not authenticate") as refused:
        MetricsEndpoint.parse("10.0.0.5:9400")
    assert "--users" not in str(refused.value.fix)


@pytest.mark.parametrize(("host", "status"), [("evil.example", 421), ("localhost:1", 200)])
def test_a_page_without_users_is_not_read_under_a_foreign_name(host: str, status: int) -> None:
    page = MetricsPage(MetricsEndpoint.parse("127.0.0.1:0"), lambda: b"up 1\n")
    try:
        asked = urllib.request.Request(page.url, headers={"Host": host})
        try:
            with urllib.request.urlopen(asked, timeout=60) as answer:
                found = answer.status
        except urllib.error.HTTPError as refused:
            found = refused.code
            refused.close()
        assert found == status
    finally:
        page.stop()
