"""A file or folder on a remote file system, with pathlib's methods.

Rules:

- A file system implements the abstract methods in its own way. Everything that follows from them is
  here, once.
- A path carries everything that is needed to reach it, so that it can be sent to Spark's workers.
"""

from __future__ import annotations

import io
import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from fnmatch import fnmatch
from pathlib import PurePosixPath
from typing import IO, Any, Self

BUFFER_BYTES = 1 << 20


@dataclass(frozen=True, slots=True, order=True)
class RemotePath(ABC):
    """A path on a remote file system."""

    site: str  # the URI of the file system
    path: str  # absolute
    size: int | None = field(default=None, compare=False, kw_only=True)  # bytes, if listed

    def __str__(self) -> str:
        return f"{self.site}{self.path}"

    def __truediv__(self, name: str) -> Self:
        return self.at(f"{self.path.rstrip('/')}/{name}")

    @property
    def name(self) -> str:
        """The last part."""
        return PurePosixPath(self.path).name

    @property
    def stem(self) -> str:
        """The last part without its suffix."""
        return PurePosixPath(self.path).stem

    @property
    def parent(self) -> Self:
        """The folder that contains it."""
        return self.at(str(PurePosixPath(self.path).parent))

    def with_name(self, name: str) -> Self:
        """Return a path in the same folder."""
        return self.parent / name

    def with_suffix(self, suffix: str) -> Self:
        """Return a path in the same folder, with another suffix."""
        return self.at(str(PurePosixPath(self.path).with_suffix(suffix)))

    def at(self, path: str, size: int | None = None) -> Self:
        """Return another path of the same file system."""
        return replace(self, path=path, size=size)

    def glob(self, pattern: str) -> Iterator[Self]:
        """Iterate over matching entries of the folder or its folders; none if it is missing."""
        first, _, rest = pattern.partition("/")
        try:
            found = [one for one in self.iterdir() if fnmatch(one.name, first)]
        except FileNotFoundError:
            return
        for one in found:
            if rest:
                yield from one.glob(rest)
            else:
                yield one

    def read_text(self, encoding: str = "utf-8") -> str:
        """Return the content of the file."""
        return io.BufferedReader(self.download(), BUFFER_BYTES).read().decode(encoding)

    @abstractmethod
    def exists(self) -> bool:
        """Return whether it exists."""

    @abstractmethod
    def is_dir(self) -> bool:
        """Return whether it exists and is a folder."""

    @abstractmethod
    def length(self) -> int:
        """Return the size of the file in bytes."""

    @abstractmethod
    def modified(self) -> float:
        """Return when the file was last written, in seconds, by the file system's clock."""

    @abstractmethod
    def iterdir(self) -> Iterator[Self]:
        """Iterate over the entries of the folder."""

    @abstractmethod
    def mkdir(self, parents: bool = False, exist_ok: bool = False) -> None:
        """Create the folder and its parents; an existing one is no error."""

    @abstractmethod
    def write_text(self, text: str, encoding: str = "utf-8") -> int:
        """Write the file in place of an older one."""

    @abstractmethod
    def create(self, text: str, beside: Self | None = None) -> None:
        """Create the file whole, prepared in `beside`; FileExistsError if it exists."""

    @abstractmethod
    def put(self, text: str) -> None:
        """Replace the file, or create it, whole."""

    @abstractmethod
    def upload(self) -> IO[bytes]:
        """Open the file for writing; it exists when it is closed."""

    @abstractmethod
    def download(self) -> RangeReader:
        """Open the file for reading."""

    @abstractmethod
    def move(self, target: Self) -> None:
        """Rename the file to an unused name; FileNotFoundError if it is missing."""

    @abstractmethod
    def copy(self, target: Self) -> None:
        """Copy the file to a second name."""

    @abstractmethod
    def unlink(self, missing_ok: bool = False) -> None:
        """Remove the file."""

    @abstractmethod
    def rmdir(self) -> None:
        """Remove the folder; OSError if it is not empty."""

    @abstractmethod
    def remove_tree(self) -> None:
        """Remove the folder and everything in it; a missing one is no error."""

    def spark_settings(self) -> Mapping[str, str]:
        """Return the settings with which Spark reads this file system."""
        return {}

    def spark_file_system(self) -> tuple[str, str] | None:
        """Return the Java class that reads it, and its package, unless Spark includes it."""
        return None


class RangeReader(io.RawIOBase):
    """A remote file opened for reading. Every read is a request, so read large blocks."""

    def __init__(self, read: Callable[[int, int], bytes], size: int) -> None:
        self._read = read  # (offset, length) to bytes, fewer at the end
        self._size = size
        self._at = 0  # offset of the next read

    def readable(self) -> bool:
        """Return True."""
        return True

    def seekable(self) -> bool:
        """Return True."""
        return True

    def tell(self) -> int:
        """Return the offset of the next read."""
        return self._at

    def seek(self, offset: int, whence: int = os.SEEK_SET, /) -> int:
        """Set the offset of the next read."""
        self._at = offset + {os.SEEK_SET: 0, os.SEEK_CUR: self._at, os.SEEK_END: self._size}[whence]
        return self._at

    def readinto(self, buffer: Any, /) -> int:
        """Fill a buffer, as far as the file goes, and return the number of bytes."""
        wanted = max(0, min(len(buffer), self._size - self._at))
        if not wanted:
            return 0
        found = self._read(self._at, wanted)
        buffer[: len(found)] = found
        self._at += len(found)
        return len(found)
