"""A `logging.Handler` that sends every record as a LogLine event.

Rules: `emit` never raises and never waits. It skips records of Headworks' loggers, and records that
are logged during a send. Otherwise trouble with a broker would be reported to that broker.
"""

from __future__ import annotations

import logging
import os
import socket
import threading
from datetime import UTC, datetime
from typing import Protocol

from headworks.codec import Event
from producer_sdk.operations._event import LogLine

_OWN_LOGGERS = "headworks"
_MAX_TEXT_CHARACTERS = 32_768
_STANDARD_ATTRIBUTES = frozenset(vars(logging.makeLogRecord({}))) | {
    "message",
    "asctime",
    "taskName",
}


class EventSender(Protocol):
    """The part of a producer that this package uses."""

    def send(self, event: Event) -> bool:
        """Queue an event."""
        ...


class EventLogHandler(logging.Handler):
    """Sends records by `producer` to the topic headworks.logs, as those of `application`."""

    def __init__(
        self, producer: EventSender, *, application: str, level: int = logging.NOTSET
    ) -> None:
        super().__init__(level)
        self._producer = producer
        self._application = application
        self._host = socket.gethostname()
        self._sending = threading.local()  # `now`: whether this thread is inside `emit`

    def emit(self, record: logging.LogRecord) -> None:
        """Send a record."""
        if record.name.partition(".")[0] == _OWN_LOGGERS or getattr(self._sending, "now", False):
            return
        self._sending.now = True
        try:
            self._producer.send(self._event(record))
        except Exception:
            self.handleError(record)
        finally:
            self._sending.now = False

    def _event(self, record: logging.LogRecord) -> LogLine:
        failed = record.exc_info
        text = (self.formatter or _PLAIN).formatException(failed) if failed else record.exc_text
        return LogLine(
            at=datetime.fromtimestamp(record.created, UTC),
            level=record.levelname,
            logger=record.name,
            message=_clean(record.getMessage()),
            exception=None if text is None else _clean(text),
            fields={
                _clean(str(name)): _clean(str(value))
                for name, value in vars(record).items()
                if name not in _STANDARD_ATTRIBUTES
            },
            host=self._host,
            application=self._application,
            process=os.getpid(),
            thread=_clean(record.threadName or ""),
        )


_PLAIN = logging.Formatter()


def _clean(text: str) -> str:
    """Return text of bounded length that UTF-8 can encode."""
    return text[:_MAX_TEXT_CHARACTERS].encode(errors="replace").decode()
