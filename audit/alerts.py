"""Findings told to a webhook: once when they begin, once when they are over.

Rules: what has been told is in the store, and is written there after the webhook has taken it:
a restart repeats nothing, and a webhook that is away hears of it later. One message has all that
changed since the last.
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

__all__ = ["SendAlert", "send_alerts", "webhook"]

_log = logging.getLogger("headworks.audit")
_TIMEOUT_SECONDS = 5.0
SendAlert = Callable[[dict[str, Any]], None]


def webhook(url: str) -> SendAlert:
    """A function that posts JSON to `url`, and raises if it is not taken."""
    pool = urllib3.PoolManager(retries=False, timeout=urllib3.Timeout(_TIMEOUT_SECONDS))

    def post(message: dict[str, Any]) -> None:
        answer = pool.request("POST", url, json=message)
        if not 200 <= answer.status < 300:
            raise urllib3.exceptions.HTTPError(f"status {answer.status}")

    return post


def send_alerts(store: AuditStore, found: Sequence[AuditFinding], now: int, post: SendAlert) -> int:
    """Tell what is new and what is over; the number of findings told of."""
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
