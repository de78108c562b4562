"""Pings a pooled connection before it is used again, if it may be lost.

Rules:

- A connection that was returned a moment ago is not pinged: that would cost as much as a query.
- Once a connection is found lost, all that were returned before are pinged. So a restart of the
  database fails the requests that were under way, and no others.
"""

from __future__ import annotations

import time
from typing import Any, Final

from sqlalchemy import Engine, event
from sqlalchemy.exc import DisconnectionError

_IDLE_SECONDS: Final = 1.0
_RETURNED: Final = "headworks_returned"  # when, by the monotonic clock


def ping_idle_connections(engine: Engine) -> None:
    """Let the engine's pool replace connections that were lost while nobody used them."""
    lost_at = 0.0  # when a connection was last found lost

    def returned(_connection: Any, record: Any) -> None:
        record.info[_RETURNED] = time.monotonic()

    def lost(_connection: Any, _record: Any, _error: BaseException | None) -> None:
        nonlocal lost_at
        lost_at = time.monotonic()

    def taken(connection: Any, record: Any, _proxy: Any) -> None:
        since = record.info.get(_RETURNED)
        if since is None or since > max(time.monotonic() - _IDLE_SECONDS, lost_at):
            return  # new, or used a moment ago
        try:
            engine.dialect.do_ping(connection)
        except engine.dialect.loaded_dbapi.Error as error:
            lost(connection, record, None)
            raise DisconnectionError(str(error)) from error

    event.listen(engine, "checkin", returned)
    event.listen(engine, "invalidate", lost)
    event.listen(engine, "checkout", taken)
