"""Findings sent to a webhook: once when they start, and once when they are resolved.

Rules: the store holds what was sent, and is updated after the webhook has accepted it. A restart
therefore repeats nothing, and an unavailable webhook gets the alerts later. One request has all
changes since the last one.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Sequence
from typing import Any

import urllib3
from sqlalchemy import delete, insert, select

from headworks._audit.findings import AuditFinding
from headworks._audit.store import AuditStore, tables

_log = logging.getLogger("headworks.audit")
_TIMEOUT_SECONDS = 5.0
SendAlert = Callable[[dict[str, Any]], None]


def webhook(url: str) -> SendAlert:
    """Return a function that posts JSON to `url`, and raises unless the status is 2xx."""
    pool = urllib3.PoolManager(retries=False, timeout=urllib3.Timeout(_TIMEOUT_SECONDS))

    def post(message: dict[str, Any]) -> None:
        answer = pool.request("POST", url, json=message)
        if not 200 <= answer.status < 300:
            raise urllib3.exceptions.HTTPError(f"status {answer.status}")

    return post


def send_alerts(store: AuditStore, found: Sequence[AuditFinding], now: int, post: SendAlert) -> int:
    """Send new and resolved findings. Return their number."""
    with store.read() as connection:
        rows = connection.execute(select(tables.alerts)).all()
    known = {row.key: (json.loads(row.content), row.since) for row in rows}
    current = {finding.key: finding for finding in found}
    new = [finding for key, finding in current.items() if key not in known]
    resolved = sorted(known.keys() - current.keys())
    if not new and not resolved:
        return 0
    message = {
        "service": "headworks audit",
        "firing": [{**f.as_dict(), "since": now} for f in new],
        "resolved": [{**known[key][0], "since": known[key][1]} for key in resolved],
    }
    try:
        post(message)
    except urllib3.exceptions.HTTPError as error:
        _log.warning("the webhook does not take alerts, they are told later: %s", error)
        return 0
    with store.write() as connection:
        connection.execute(delete(tables.alerts).where(tables.alerts.c.key.in_(resolved)))
        if new:
            connection.execute(
                insert(tables.alerts),
                [{"key": f.key, "content": json.dumps(f.as_dict()), "since": now} for f in new],
            )
    return len(new) + len(resolved)
