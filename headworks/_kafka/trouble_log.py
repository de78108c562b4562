"""Log lines about trouble that lasts: at once, and then once a minute with the number of reports.

librdkafka retries by itself, for ever and without a word. The SDKs log what it reports.

Rules:

- The first report of a kind is logged at once. Those that follow within a minute are counted, and
  the next line names their number.
- One lost connection is no trouble yet: only the loss of every broker is.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from typing import Any

from confluent_kafka import KafkaError

_CONNECTION_ERRORS = {KafkaError._TRANSPORT, KafkaError._RESOLVE}
LOG_SECONDS = 60.0


class TroubleLog:
    """Warns in `log`, at most once a minute for each kind of trouble."""

    def __init__(self, log: logging.Logger) -> None:
        self._log = log
        self._logged: dict[str, float] = {}  # the monotonic time, by kind of trouble
        self._unlogged: dict[str, int] = {}  # reports since then

    def warn(self, kind: str, text: str) -> None:
        """Report trouble once; a line that follows others names how many were left out."""
        more = self._unlogged.get(kind, 0)
        if not self.is_due(kind):
            self._unlogged[kind] = more + 1
            return
        self._unlogged[kind] = 0
        self._log.warning("%s%s", text, f" ({more} more since the last line)" if more else "")

    def is_due(self, kind: str) -> bool:
        """Return whether a line of this kind may be logged now; the caller then logs it."""
        now = time.monotonic()
        if now - self._logged.get(kind, -LOG_SECONDS) < LOG_SECONDS:
            return False
        self._logged[kind] = now
        return True


class BrokerTrouble:
    """The reports of librdkafka about the brokers of one client at `address`.

    `config` holds the user's properties of librdkafka, whose `error_cb` is called as well.
    """

    def __init__(self, address: str, config: Mapping[str, Any], log: logging.Logger) -> None:
        self.address = address
        self.down_since: float | None = None  # the monotonic time at which no broker was left
        self.reason = ""  # of the last lost connection
        self.log = TroubleLog(log)
        self._debug = log.debug
        self._forward: Callable[[KafkaError], None] | None = config.get("error_cb")

    def report(self, error: KafkaError) -> None:
        """Take a report: the `error_cb` of the client."""
        if error.code() in _CONNECTION_ERRORS:
            self.reason = error.str()
            self._debug("brokers %s: %s", self.address, self.reason)
        elif error.code() == KafkaError._ALL_BROKERS_DOWN:
            self.down_since = self.down_since or time.monotonic()
            self.log.warn(error.name(), f"no broker at {self.address} answers: {self.reason}")
        else:
            self.log.warn(error.name(), f"brokers {self.address}: {error.str()}")
        if self._forward is not None:
            self._forward(error)
