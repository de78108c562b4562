"""The catalog's `governance.toml`, read again whenever it has changed.

Rules: the file may appear after the console has started. A file that became unreadable changes
nothing: the log says why, and the last good one stays.
"""

from __future__ import annotations

import logging
from pathlib import Path

from headworks._ci.governance import FILE_NAME, GovernanceFile, read_governance
from headworks.errors import UsageError

_LOG = logging.getLogger(__name__)


class GovernanceReader:
    """Reads the file of the catalog in `folder`. Raises UsageError if it is wrong at the start."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._seen = self._stamp()
        self._known = read_governance(folder)

    def __call__(self) -> GovernanceFile:
        """Return the file as it is now, or the last one that could be read."""
        stamp = self._stamp()
        if stamp != self._seen:
            self._seen = stamp
            try:
                self._known = read_governance(self._folder)
            except UsageError as error:
                _LOG.warning("%s; the last good one stays in use", error)
        return self._known

    def _stamp(self) -> tuple[int, int] | None:
        """Return the time and size of the file, or None if there is none, or it is out of reach."""
        try:
            found = (self._folder / FILE_NAME).stat()
        except OSError:
            return None
        return found.st_mtime_ns, found.st_size
