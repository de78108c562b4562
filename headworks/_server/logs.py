"""Logs of the servers: lines for people, or one JSON object a line for machines. To stderr.

Rules: what a record is about (peer, topic, offset, ...) is given as `extra`, so that a machine
finds it without parsing sentences. Nothing secret is logged.
"""

from __future__ import annotations

import logging
import sys
from typing import TextIO

from headworks.errors import UsageError

__all__ = ["FORMATS", "LEVELS", "configure"]

FORMATS = ("text", "json")
LEVELS = ("debug", "info", "warning", "error")
_TEXT = "%(asctime)s %(levelname)s %(name)s %(message)s"


def configure(style: str = "text", level: str = "info", *, stream: TextIO | None = None) -> None:
    """Set up the root logger of this process; UsageError for an unknown format or level."""
    for what, value, known in (("log_format", style, FORMATS), ("log_level", level, LEVELS)):
        if value not in known:
            raise UsageError(f"{what} {value!r} is not known", fix=f"use {', '.join(known)}")
    handler = _ToStderr() if stream is None else logging.StreamHandler(stream)
    handler.setFormatter(_json_formatter() if style == "json" else logging.Formatter(_TEXT))
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level.upper())


class _ToStderr(logging.StreamHandler[TextIO]):
    """Writes to what sys.stderr is at the time: progress bars put something of theirs there."""

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
