"""Progress without a terminal: every ten seconds, one line on stderr says what is going on.

Rules: short work prints no line. The lines go to a descriptor of their own, because descriptor 2 is
turned away while Spark's JVM starts.
"""

from __future__ import annotations

import io
import os
import sys
import threading
import time
from typing import IO, Self

_EVERY_SECONDS = 10.0


class ProgressLines:
    """Prints `show`'s last text at an interval, with the seconds since the block began.

    `to` is where it prints, and stays open. Without it, the lines go to a copy of stderr.
    """

    def __init__(
        self, text: str, *, every: float = _EVERY_SECONDS, to: IO[str] | None = None
    ) -> None:
        self._text = text
        self._every = every
        self._began = time.monotonic()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="headworks-progress", daemon=True)
        self._file = own_stderr() if to is None else to
        self._owns_file = to is None

    def show(self, text: str) -> None:
        """Print this text from now on."""
        self._text = text

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._thread.join()
        if self._owns_file:
            self._file.close()

    def _run(self) -> None:
        while not self._ended.wait(self._every):
            self._file.write(f"  {self._text} ... {time.monotonic() - self._began:.0f} s\n")
            self._file.flush()


def own_stderr() -> IO[str]:
    """Return a text file on a copy of stderr's descriptor; without a descriptor, an idle one."""
    try:
        copy = os.dup(sys.stderr.fileno())
    except (OSError, io.UnsupportedOperation):
        return io.StringIO()
    return os.fdopen(copy, "w", buffering=1, encoding="utf-8")
