"""The logs of our servers, on stderr: lines for people, or one JSON object per line for machines.

Rules: the values of a record (peer, topic, offset, ...) are passed as `extra`, so that a machine
reads them without parsing sentences. No secret is logged.
"""

from __future__ import annotations

import logging
import sys
from typing import TextIO

from headworks.errors import UsageError

FORMATS = ("text", "json")
LEVELS = ("debug", "info", "warning", "error")
_TEXT = "%(asctime)s %(levelname)s %(name)s %(message)s"


def configure(style: str = "text", level: str = "info", *, stream: TextIO | None = None) -> None:
    """Configure the root logger; UsageError for an unknown format or level."""
    for what, value, known in (("log_format", style, FORMATS), ("log_level", level, LEVELS)):
        if value not in known:
            raise UsageError(f"{what} {value!r} is not known", fix=f"use {', '.join(known)}")
    handler = _ToStderr() if stream is None else logging.StreamHandler(stream)
    handler.setFormatter(_json_formatter() if style == "json" else logging.Formatter(_TEXT))
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level.upper())


class _ToStderr(logging.StreamHandler[TextIO]):
    """Writes to the current sys.stderr, which progress bars replace."""

    def emit(self, record: logging.LogRecord) -> None:
        """Write a record."""
        self.stream = sys.stderr
        super().emit(record)


def _json_formatter() -> logging.Formatter:
    from pythonjsonlogger.json import JsonFormatter

    return JsonFormatter(
        "{asctime}{levelname}{name}{message}",
        style="{",
        rename_fields={"asctime": "time", "levelname": "level", "name": "logger"},
        datefmt="%Y-%m-%dT%H:%M:%S%z",
        json_ensure_ascii=False,
    )
