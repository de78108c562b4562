"""A file that is read again when it changes.

Rules: the file is checked at most once a second, so that most uses need no system call. If a
changed file cannot be read or parsed, every use raises the error until the file is fixed.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Generic, TypeVar

from headworks.errors import UsageError

_CHECK_SECONDS = 1.0
_T = TypeVar("_T")


class ReloadedFile(Generic[_T]):
    """The content of `path`, parsed by `parse`; thread-safe. UsageError if unreadable."""

    def __init__(
        self,
        path: Path,
        parse: Callable[[str], _T],
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._path = path
        self._parse = parse
        self._clock = clock  # seconds
        self._lock = threading.Lock()  # one thread reads the file
        self._mark: tuple[int, int, int] | None = None  # mtime, size, and inode; None: after errors
        self._content = self._read()
        self._checked = clock()  # when the file was last checked

    def get(self) -> _T:
        """Return the current content, at most a second old."""
        if self._clock() - self._checked >= _CHECK_SECONDS:
            with self._lock:
                self._content = self._read()
                self._checked = self._clock()
        return self._content

    def _read(self) -> _T:
        try:
            found = self._path.stat()
            mark = (found.st_mtime_ns, found.st_size, found.st_ino)
            if mark == self._mark:
                return self._content
            text = self._path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            self._mark = None
            why = error.strerror if isinstance(error, OSError) else error
            raise UsageError(f"cannot read {self._path}: {why}") from None
        self._mark = None
        try:
            content = self._parse(text)
        except UsageError as error:
            raise UsageError(f"{self._path}: {error.message}", fix=error.fix) from None
        self._mark = mark
        return content
