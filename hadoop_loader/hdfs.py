"""A file or folder of HDFS, by the names that pathlib has for what is done with one.

Rules:

- Everything goes over WebHDFS; Spark reads the same files by their `hdfs://` URI.
- Where name nodes listen is in `hdfs-site.xml` of HADOOP_CONF_DIR, which Spark reads too; without
  one it is Hadoop's own port. A place carries what was found there, so a task needs no such file.
- A rename is at once, and never onto a file that is there unless that is what is asked for.
"""

from __future__ import annotations

import errno
import getpass
import io
import os
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterator
from dataclasses import dataclass, field
from fnmatch import fnmatch
from pathlib import Path, PurePosixPath
from typing import IO, Any, cast
from urllib.parse import urlsplit

from hadoop_loader.webhdfs import Download, NameNodes, Upload
from headworks.errors import UsageError

__all__ = ["HdfsPath", "hdfs_path"]

_PORT = 9870
_BUFFER = 1 << 20
# Bytes are on the disks of the data nodes when a file is closed, not only in their memory.
_DURABLE = "create,sync_block"


@dataclass(frozen=True, slots=True, order=True)
class HdfsPath:
    """`site`: hdfs:// and the name of the file system; `size`: if a listing has told it."""

    site: str
    path: str
    nodes: NameNodes = field(compare=False)
    size: int | None = field(default=None, compare=False)

    def __str__(self) -> str:
        return f"{self.site}{self.path}"

    def __truediv__(self, name: str) -> HdfsPath:
        return self._at(f"{self.path.rstrip('/')}/{name}")

    @property
    def name(self) -> str:
        """The last part."""
        return PurePosixPath(self.path).name

    @property
    def stem(self) -> str:
        """The last part without its suffix."""
        return PurePosixPath(self.path).stem

    @property
    def parent(self) -> HdfsPath:
        """The folder it is in."""
        return self._at(str(PurePosixPath(self.path).parent))

    def with_name(self, name: str) -> HdfsPath:
        """Beside it."""
        return self.parent / name

    def with_suffix(self, suffix: str) -> HdfsPath:
        """Beside it, the same name with another suffix."""
        return self._at(str(PurePosixPath(self.path).with_suffix(suffix)))

    def exists(self) -> bool:
        """Whether it is there."""
        return self._status() is not None

    def is_dir(self) -> bool:
        """Whether it is there, and a folder."""
        status = self._status()
        return status is not None and status["type"] == "DIRECTORY"

    def length(self) -> int:
        """How many bytes the file has."""
        if self.size is not None:
            return self.size
        return int(self._ask("GET", "GETFILESTATUS")["FileStatus"]["length"])

    def modified(self) -> float:
        """When the file was last written, in seconds, by the name node's clock."""
        return int(self._ask("GET", "GETFILESTATUS")["FileStatus"]["modificationTime"]) / 1000

    def iterdir(self) -> Iterator[HdfsPath]:
        """What is in the folder; FileNotFoundError if it is not there."""
        found = self._ask("GET", "LISTSTATUS")["FileStatuses"]["FileStatus"]
        for one in found:
            inside = self / str(one["pathSuffix"])
            yield self._at(inside.path, int(one["length"]))

    def glob(self, pattern: str) -> Iterator[HdfsPath]:
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

    def mkdir(self, parents: bool = False, exist_ok: bool = False) -> None:  # noqa: ARG002
        """Make the folder; those that it is in are made too, and one that is there stays."""
        self._ask("PUT", "MKDIRS")

    def read_text(self, encoding: str = "utf-8") -> str:
        """What the file holds."""
        size = self.length()
        return io.BufferedReader(self.download(size), _BUFFER).read().decode(encoding)

    def write_text(self, text: str, encoding: str = "utf-8") -> int:
        """Write the file, over what it held."""
        with self.upload() as out:
            return out.write(text.encode(encoding))

    def upload(self, *, new: bool = False) -> IO[bytes]:
        """The file, to be written; `new`: refused if it is there, or its folder is not."""
        given = {"overwrite": "false", "createparent": "false"} if new else {"overwrite": "true"}
        flags = _DURABLE if new else f"{_DURABLE},overwrite"
        url = self.nodes.location("PUT", self.path, "CREATE", createflag=flags, **given)
        return cast("IO[bytes]", io.BufferedWriter(Upload("PUT", url, self.path), _BUFFER))

    def download(self, size: int | None = None) -> Download:
        """The file, to be read."""
        return Download(self.nodes, self.path, self.length() if size is None else size)

    def rename(self, target: HdfsPath, *, over: bool = False) -> None:
        """Give it another name; FileExistsError if that is taken, unless it may go `over` it."""
        option = "OVERWRITE" if over else "NONE"
        self._ask("PUT", "RENAME", destination=target.path, renameoptions=option)

    def unlink(self, missing_ok: bool = False) -> None:
        """Remove the file."""
        if not self._ask("DELETE", "DELETE")["boolean"] and not missing_ok:
            raise FileNotFoundError(errno.ENOENT, "no such file", self.path)

    def rmdir(self) -> None:
        """Remove the folder, which is empty."""
        self._ask("DELETE", "DELETE", recursive="false")

    def remove_tree(self) -> None:
        """Remove the folder and all in it, at once."""
        self._ask("DELETE", "DELETE", recursive="true")

    def _at(self, path: str, size: int | None = None) -> HdfsPath:
        return HdfsPath(self.site, path, self.nodes, size)

    def _ask(self, method: str, op: str, **given: str) -> dict[str, Any]:
        return self.nodes.ask(method, self.path, op, **given)

    def _status(self) -> dict[str, Any] | None:
        try:
            return dict(self._ask("GET", "GETFILESTATUS")["FileStatus"])
        except FileNotFoundError:
            return None


def hdfs_path(uri: str) -> HdfsPath:
    """A place by its URI; UsageError if that names no file system."""
    parts = urlsplit(uri)
    if not parts.hostname:
        raise UsageError(f"{uri} names no file system", fix="give hdfs://NAMENODE:8020/FOLDER")
    path = "/" + parts.path.strip("/")
    nodes = NameNodes(_addresses(parts.netloc, parts.hostname, _site()), _user())
    return HdfsPath(f"hdfs://{parts.netloc}", path, nodes)


def _addresses(name: str, host: str, site: dict[str, str]) -> tuple[str, ...]:
    """Where the name nodes of a file system answer HTTP; several if it is highly available."""
    nodes = [n.strip() for n in site.get(f"dfs.ha.namenodes.{name}", "").split(",") if n.strip()]
    found = [site.get(f"dfs.namenode.http-address.{name}.{node}", "") for node in nodes]
    if any(found):
        return tuple(filter(None, found))
    port = site.get("dfs.namenode.http-address", "").rpartition(":")[2] or _PORT
    return (f"{host}:{port}",)


def _site() -> dict[str, str]:
    """The settings of the `hdfs-site.xml` that Spark reads too."""
    folder = os.environ.get("HADOOP_CONF_DIR")
    file = Path(folder) / "hdfs-site.xml" if folder else None
    if file is None or not file.exists():
        return {}
    found = ElementTree.parse(file).getroot().iter("property")
    return {p.findtext("name", "").strip(): p.findtext("value", "").strip() for p in found}


def _user() -> str:
    """Whose files they are, as Hadoop's own clients find it out."""
    return os.environ.get("HADOOP_USER_NAME") or getpass.getuser()
