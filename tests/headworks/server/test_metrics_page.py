"""The page of metrics: who drips holds no place for ever."""

from __future__ import annotations

import socket
import time
import urllib.request

import pytest

from headworks._server import metrics_page
from headworks._server.metrics_page import Door, MetricsPage


def is_cut_off(slow: socket.socket) -> bool:
    """Whether dripping comes to an end."""
    end = time.monotonic() + 60
    while time.monotonic() < end:
        try:
            slow.sendall(b"x")
        except OSError:
            return True
        time.sleep(0.1)
    return False


def test_who_drips_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    """A byte now and then is in time for each read, and never done."""
    monkeypatch.setattr(metrics_page, "_SECONDS", 1.0)
    monkeypatch.setattr(metrics_page, "_AT_A_TIME", 1)
    page = MetricsPage("127.0.0.1", 0, lambda: b"up 1\n", Door(None, None), None)
    try:
        address = page.url.partition("://")[2].partition("/")[0].split(":")
        with socket.create_connection((address[0], int(address[1])), 20) as slow:
            slow.sendall(b"GET /metrics HTTP/1.1\r\n")
            assert is_cut_off(slow)
        monkeypatch.setattr(metrics_page, "_SECONDS", 60.0)
        with urllib.request.urlopen(page.url, timeout=60) as answer:
            assert answer.read() == b"up 1\n"
    finally:
        page.stop()
