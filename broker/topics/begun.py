"""The partitions that this broker has begun, so that a missing folder is noticed.

The file `partitions` in the data folder lists them, with a checksum. It lies beside the folder of
the logs: a disk that is not mounted takes the logs and not the list.

Rules:

- A partition is listed after its folder is on disk, and before it takes its first batch. It leaves
  the list after its topic was deleted.
- A listed partition without a log is refused. It began once, and offsets must not begin again.
- Without the file, of an earlier version, every folder that is present counts as begun.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from crc32c import crc32c

from headworks._atomic_file import replace_file
from headworks.errors import CorruptError

FILE = "partitions"
_MAGIC = "partitions-1"


class BegunPartitions:
    """The list in the file `path`. Raises CorruptError if it is damaged."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._names: set[str] = set()
        try:
            head, _, body = path.read_bytes().partition(b"\n")
        except FileNotFoundError:
            return
        if head != b"%s %08x" % (_MAGIC.encode(), crc32c(body)):
            raise CorruptError(
                f"{path} is damaged at byte 0: it lists the partitions that must be here",
                fix="see that every partition has its folder in `logs` beside it, and delete it:"
                " the broker creates it again from these folders",
            )
        self._names = set(body.decode().split())

    def __contains__(self, name: str) -> bool:
        return name in self._names

    def add(self, names: Iterable[str]) -> None:
        """List partitions, durably."""
        self._replace(self._names.union(names))

    def remove(self, names: Iterable[str]) -> None:
        """Forget partitions, durably."""
        self._replace(self._names.difference(names))

    def _replace(self, names: set[str]) -> None:
        if names != self._names:
            body = "".join(f"{name}\n" for name in sorted(names)).encode()
            replace_file(self._path, b"%s %08x\n" % (_MAGIC.encode(), crc32c(body)) + body)
            self._names = names
