"""A file that is read again when it changes.

Rules: the file is looked at no more than once a second, so a check costs no system call in the
common case. A changed file that cannot be read or understood keeps nobody in: the error is raised
at every use until the file is mended.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Generic, TypeVar

from headworks.errors import UsageError

__all__ = ["ReloadedFile"]

_CHECK_SECONDS = 1.0
_T = TypeVar("_T")


class ReloadedFile(Generic[_T]):
    """The parsed content of `path`, by `parse(text)`; thread-safe. UsageError if unreadable."""

    def __init__(
        self,
        path: Path,
        parse: Callable[[str], _T],
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._path = path
        self._parse = parse
        self._clock = clock
        self._lock = threading.Lock()
        self._mark: tuple[int, int, int] | None = None
        self._content = self._read()
        self._looked = clock()

    def get(self) -> _T:
        """The content as it is now, at most a second old."""
        if self._clock() - self._looked >= _CHECK_SECONDS:
            with self._lock:
                self._content = self._read()
                self._looked = self._clock()
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
