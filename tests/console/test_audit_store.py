"""Pages that need the audit store while it is opened, which checks all of it."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Event
from typing import Any

import pytest

from headworks._audit.store import AuditStore
from headworks._console.sources.audits import AuditReader
from headworks.errors import UnreachableError
from tests.waiting import PATIENCE

pytestmark = pytest.mark.unit


def test_a_store_is_checked_once_and_no_page_waits_long_for_that(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = f"sqlite:///{tmp_path / 'audit.db'}"
    AuditStore(url).close()
    begun, checked = Event(), Event()
    opened: list[AuditStore] = []

    def slow(at: str, **more: Any) -> AuditStore:
        assert more == {"whole_check": False}  # by the seal: pages wait for this
        begun.set()
        assert checked.wait(PATIENCE)
        opened.append(AuditStore(at, **more))
        return opened[-1]

    monkeypatch.setattr("headworks._audit.store.AuditStore", slow)
    monkeypatch.setattr("headworks._console.sources.audits._OPENING_SECONDS", 0.1)
    reader = AuditReader(url)
    with ThreadPoolExecutor(1) as poller:
        first = poller.submit(reader)
        assert begun.wait(PATIENCE)
        with pytest.raises(UnreachableError, match="still being checked"):
            reader.topic("orders")
        checked.set()
        first.result(PATIENCE)
    assert reader.topic("orders") is not None
    assert len(opened) == 1
    opened[0].close()
