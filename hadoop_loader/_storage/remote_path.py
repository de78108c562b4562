"""A file or folder that is not on this machine, by the names that pathlib has for what is done.

Rules:

- What a file system does in its own way (make a file only if it is absent, give it a name, copy it)
  is its own; what follows from that is here, once.
- A place carries what it needs to be reached, so that it can be sent to Spark's workers.
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

__all__ = ["BUFFER_BYTES", "RangeReader", "RemotePath"]

BUFFER_BYTES = 1 << 20


@dataclass(frozen=True, slots=True, order=True)
class RemotePath(ABC):
    """`site`: the URI of the file system; `size`: if a listing has told it."""

    site: str
    path: str
    size: int | None = field(default=None, compare=False, kw_only=True)

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
        """The folder it is in."""
        return self.at(str(PurePosixPath(self.path).parent))

    def with_name(self, name: str) -> Self:
        """Beside it."""
        return self.parent / name

    def with_suffix(self, suffix: str) -> Self:
        """Beside it, the same name with another suffix."""
        return self.at(str(PurePosixPath(self.path).with_suffix(suffix)))

    def at(self, path: str, size: int | None = None) -> Self:
        """Another place of the same file system."""
        return replace(self, path=path, size=size)

    def glob(self, pattern: str) -> Iterator[Self]:
        """What is in the folder, or in its folders, and has such a name; nothing if it is gone."""
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
        """What the file holds."""
        return io.BufferedReader(self.download(), BUFFER_BYTES).read().decode(encoding)

    @abstractmethod
    def exists(self) -> bool:
        """Whether it is there."""

    @abstractmethod
    def is_dir(self) -> bool:
        """Whether it is there, and a folder."""

    @abstractmethod
    def length(self) -> int:
        """How many bytes the file has."""

    @abstractmethod
    def modified(self) -> float:
        """When the file was last written, in seconds, by the file system's clock."""

    @abstractmethod
    def iterdir(self) -> Iterator[Self]:
        """What is in the folder."""

    @abstractmethod
    def mkdir(self, parents: bool = False, exist_ok: bool = False) -> None:
        """Make the folder; those that it is in are made too, and one that is there stays."""

    @abstractmethod
    def write_text(self, text: str, encoding: str = "utf-8") -> int:
        """Write the file, over what it held."""

    @abstractmethod
    def create(self, text: str, beside: Self | None = None) -> None:
        """Make the file whole; FileExistsError if it is there. `beside`: where it is prepared."""

    @abstractmethod
    def put(self, text: str) -> None:
        """Make the file whole, in the place of one that may be there."""

    @abstractmethod
    def upload(self) -> IO[bytes]:
        """The file, to be written; it is there when it is closed."""

    @abstractmethod
    def download(self) -> RangeReader:
        """The file, to be read."""

    @abstractmethod
    def move(self, target: Self) -> None:
        """Give it another name, that is free; FileNotFoundError if it is gone."""

    @abstractmethod
    def copy(self, target: Self) -> None:
        """Put what it holds under a second name."""

    @abstractmethod
    def unlink(self, missing_ok: bool = False) -> None:
        """Remove the file."""

    @abstractmethod
    def rmdir(self) -> None:
        """Remove the folder, which is empty; OSError if it is not."""

    @abstractmethod
    def remove_tree(self) -> None:
        """Remove the folder and all in it; what is gone is no error."""

    def spark_settings(self) -> Mapping[str, str]:
        """What Spark has to know to read here."""
        return {}

    def spark_needs(self) -> tuple[str, str] | None:
        """The class that Spark reads it by, and its package, if that is not of Spark itself."""
        return None


class RangeReader(io.RawIOBase):
    """A file to read from anywhere; every read is a request, so read much at a time.

    `read` gives so many bytes from an offset on, as many as there are.
    """

    def __init__(self, read: Callable[[int, int], bytes], size: int) -> None:
        self._read = read
        self._size = size
        self._at = 0

    def readable(self) -> bool:
        """It is."""
        return True

    def seekable(self) -> bool:
        """It is."""
        return True

    def tell(self) -> int:
        """Where the next read begins."""
        return self._at

    def seek(self, offset: int, whence: int = os.SEEK_SET, /) -> int:
        """Read from there next."""
        self._at = offset + {os.SEEK_SET: 0, os.SEEK_CUR: self._at, os.SEEK_END: self._size}[whence]
        return self._at

    def readinto(self, buffer: Any, /) -> int:
        """Fill a buffer, as far as the file goes."""
        wanted = max(0, min(len(buffer), self._size - self._at))
        if not wanted:
            return 0
        found = self._read(self._at, wanted)
        buffer[: len(found)] = found
        self._at += len(found)
        return len(found)
