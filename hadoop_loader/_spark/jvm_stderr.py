"""The stderr of Spark's launcher and JVM: discarded, except for the reason why a JVM did not start.

Spark prints a few fixed lines there while it starts. Real errors of a running JVM are exceptions.

Rule: a JVM keeps the stderr that it was started with, so its pipe is read until it ends.
"""

from __future__ import annotations

import os
import re
import sys
import threading
from collections import deque

_MAX_LINES = 200
_END_SECONDS = 5.0
_REASONS = (r"Caused by: (.*)", r"Exception in thread .*?\"[^\"]*\" (.*)", r"((?i:error).*)")


class JvmStderr:
    """Takes the place of descriptor 2 while a JVM is started."""

    def __enter__(self) -> JvmStderr:
        sys.stderr.flush()
        self._lines: deque[bytes] = deque(maxlen=_MAX_LINES)
        self._ours = os.dup(2)
        read, write = os.pipe()
        os.dup2(write, 2)
        os.close(write)
        self._reader = threading.Thread(target=self._read, args=(read,), daemon=True)
        self._reader.start()
        return self

    def __exit__(self, *_: object) -> None:
        sys.stderr.flush()
        os.dup2(self._ours, 2)
        os.close(self._ours)

    def _read(self, read: int) -> None:
        with os.fdopen(read, "rb") as lines:
            self._lines.extend(lines)

    def reason(self) -> str:
        """Return why the JVM ended: its last cause, its exception, or its last line; "" if none."""
        self._reader.join(_END_SECONDS)  # the pipe of a JVM that has ended is at its end
        return reason_in(b"".join(self._lines).decode(errors="replace"))


def reason_in(text: str) -> str:
    """Return the line of a JVM's stderr that says why it ended."""
    for pattern in _REASONS:
        if found := re.findall(f"^{pattern}$", text, re.MULTILINE):
            return str(found[-1 if pattern.startswith("Caused") else 0]).strip()
    lines = [line for line in text.splitlines() if line.strip()]
    return lines[-1].strip() if lines else ""
