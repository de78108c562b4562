"""Log lines about trouble that lasts: at once, and then once a minute with the number of reports.

librdkafka retries by itself, for ever and without a word. The SDKs log what it reports.

Rules:

- The first report of a kind is logged at once. Those that follow within a minute are counted, and
  the next line names their number.
- One lost connection is no trouble yet: only the loss of every broker is. At level DEBUG it is
  logged once a minute, because librdkafka connects 20 times per second.
- librdkafka's statistics show brokers that accept requests and do not answer. Two in a row must
  say so, because a process that stood still for a moment looks the same.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from typing import Any

from confluent_kafka import KafkaError

from headworks._kafka.broker_silence import silence

_CONNECTION_ERRORS = {KafkaError._TRANSPORT, KafkaError._RESOLVE}
_LOGIN_ERRORS = {KafkaError._AUTHENTICATION, KafkaError._SSL}
LOG_SECONDS = 60.0
_HTTP = f"Invalid response size {int.from_bytes(b'HTTP')}"  # librdkafka takes the word for a size
_SILENT_SECONDS = 5.0  # without an answer to an open request, until a broker counts as silent


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

    `config` holds the user's properties of librdkafka, whose `error_cb` and `stats_cb` are called
    as well.
    """

    def __init__(self, address: str, config: Mapping[str, Any], log: logging.Logger) -> None:
        self.address = address
        self.down_since: float | None = None  # the monotonic time at which no broker was left
        self.reason = ""  # of the last lost connection
        self.fix = "start it with `headworks up`, or set `bootstrap`"  # for that reason
        self.log = TroubleLog(log)
        self._debug = log.debug
        self._forward: Callable[[KafkaError], None] | None = config.get("error_cb")
        self._their_statistics: Callable[[str], object] | None = config.get("stats_cb")
        waits = int(config.get("fetch.wait.max.ms", 500)) / 1000
        self._patience = _SILENT_SECONDS + waits  # a broker may answer a fetch so late
        self._was_silent = False  # by the statistics before the last ones
        self.has_answered = False  # since `down_since`

    @property
    def callbacks(self) -> dict[str, Any]:
        """The properties of librdkafka by which its client reports here."""
        return {"error_cb": self.report, "stats_cb": self.look}

    def look(self, statistics: str) -> None:
        """Take librdkafka's statistics, a JSON text: the `stats_cb` of the client."""
        seconds = silence(statistics, self._patience)
        if seconds is not None:
            self.has_answered = not seconds and self.down_since is not None
            if seconds and self._was_silent:
                self.down_since = self.down_since or time.monotonic() - seconds
                self.reason = f"requests have waited for {seconds:.0f} s"
                self._warn_of_none(KafkaError(KafkaError._ALL_BROKERS_DOWN))
            self._was_silent = bool(seconds)
        if self._their_statistics is not None:
            self._their_statistics(statistics)

    def _warn_of_none(self, error: KafkaError) -> None:
        self.log.warn(error.name(), f"no broker at {self.address} answers: {self.reason}")

    def report(self, error: KafkaError) -> None:
        """Take a report: the `error_cb` of the client."""
        text = error.str().partition(" (after ")[0]  # a time that is always another one
        if error.code() in _CONNECTION_ERRORS:
            self.reason = text
            if self.log.is_due(text):
                self._debug("brokers %s: %s", self.address, text)
        elif _HTTP in text:
            self.reason = "an HTTP server is there, and no Kafka broker"
            self.fix = "set `bootstrap` to the address of a broker"
            self.log.warn(error.name(), f"brokers {self.address}: {self.reason}")
        elif error.code() in _LOGIN_ERRORS:
            self.reason, self.fix = text, "correct the security properties in `config`"
            self.log.warn(error.name(), f"brokers {self.address}: {text}")
        elif error.code() == KafkaError._ALL_BROKERS_DOWN:
            self.down_since, self.has_answered = self.down_since or time.monotonic(), False
            self.reason = self.reason or "requests have waited for too long"
            self._warn_of_none(error)
        else:
            self.log.warn(error.name(), f"brokers {self.address}: {text}")
        if self._forward is not None:
            self._forward(error)
