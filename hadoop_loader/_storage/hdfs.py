"""Files and folders of HDFS, with pathlib's methods.

Rules:

- Everything goes over WebHDFS. Spark reads the same files by their `hdfs://` URI.
- The HTTP addresses of the name nodes come from `hdfs-site.xml` in HADOOP_CONF_DIR, which Spark
  reads too. Without one, Hadoop's default port is used. A path carries the addresses, so tasks do
  not need the file.
- A rename is atomic. It replaces an existing file only if the caller asks for it.
"""

from __future__ import annotations

import errno
import getpass
import io
import os
import shutil
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import IO, Any, Self, cast
from urllib.parse import urlsplit

from hadoop_loader._storage.remote_path import BUFFER_BYTES, RangeReader, RemotePath
from hadoop_loader._storage.webhdfs import NameNodes, Upload
from headworks.errors import UsageError

_DEFAULT_HTTP_PORT = 9870
_COPY_BYTES = 8 << 20
# sync_block: a closed file is on the disks of the data nodes, not only in their memory.
_CREATE_OPTIONS = {"overwrite": "false", "createparent": "false", "createflag": "create,sync_block"}
_OVERWRITE_OPTIONS = {"overwrite": "true", "createflag": "create,sync_block,overwrite"}


@dataclass(frozen=True, slots=True, order=True)
class HdfsPath(RemotePath):
    """A path in HDFS; `site` is hdfs:// and the name of the file system."""

    nodes: NameNodes = field(compare=False)  # the name nodes of that file system

    def exists(self) -> bool:
        """Return whether it exists."""
        return self._status() is not None

    def is_dir(self) -> bool:
        """Return whether it exists and is a folder."""
        status = self._status()
        return status is not None and status["type"] == "DIRECTORY"

    def length(self) -> int:
        """Return the size of the file in bytes."""
        if self.size is not None:
            return self.size
        return int(self._ask("GET", "GETFILESTATUS")["FileStatus"]["length"])

    def modified(self) -> float:
        """Return when the file was last written, in seconds, by the name node's clock."""
        return int(self._ask("GET", "GETFILESTATUS")["FileStatus"]["modificationTime"]) / 1000

    def iterdir(self) -> Iterator[Self]:
        """Iterate over the entries of the folder; FileNotFoundError if it is missing."""
        found = self._ask("GET", "LISTSTATUS")["FileStatuses"]["FileStatus"]
        for one in found:
            inside = self / str(one["pathSuffix"])
            yield self.at(inside.path, int(one["length"]))

    def mkdir(self, parents: bool = False, exist_ok: bool = False) -> None:  # noqa: ARG002
        """Create the folder and its parents; an existing one is no error."""
        self._ask("PUT", "MKDIRS")

    def write_text(self, text: str, encoding: str = "utf-8") -> int:
        """Write the file in place of an older one."""
        with self.upload() as out:
            return out.write(text.encode(encoding))

    def create(self, text: str, beside: Self | None = None) -> None:
        """Create the file whole; FileExistsError if it exists.

        It is written in `beside` before it gets its name; FileNotFoundError if that folder is gone.
        """
        temporary = self._unnamed(beside)
        with temporary._written(_CREATE_OPTIONS) as out:
            out.write(text.encode())
        try:
            temporary._rename(self, "NONE")
        except FileExistsError:
            temporary.unlink()
            raise

    def put(self, text: str) -> None:
        """Replace the file, or create it, whole."""
        temporary = self._unnamed()
        temporary.write_text(text)
        temporary._rename(self, "OVERWRITE")

    def upload(self) -> IO[bytes]:
        """Open the file for writing; it exists when it is closed."""
        return self._written(_OVERWRITE_OPTIONS)

    def download(self) -> RangeReader:
        """Open the file for reading."""
        return RangeReader(partial(self.nodes.read, self.path), self.length())

    def move(self, target: Self) -> None:
        """Rename the file; FileExistsError if the target exists."""
        self._rename(target, "NONE")

    def copy(self, target: Self) -> None:
        """Copy the file to a second name."""
        with self.download() as file, target.upload() as out:
            shutil.copyfileobj(file, out, _COPY_BYTES)

    def unlink(self, missing_ok: bool = False) -> None:
        """Remove the file."""
        if not self._ask("DELETE", "DELETE")["boolean"] and not missing_ok:
            raise FileNotFoundError(errno.ENOENT, "no such file", self.path)

    def rmdir(self) -> None:
        """Remove the folder, which must be empty."""
        self._ask("DELETE", "DELETE", recursive="false")

    def remove_tree(self) -> None:
        """Remove the folder and everything in it, in one step."""
        self._ask("DELETE", "DELETE", recursive="true")

    def _unnamed(self, folder: Self | None = None) -> Self:
        """Return an unused name for a file that is being written."""
        return (folder or self.parent) / f".{self.name}.{os.urandom(6).hex()}"

    def _written(self, how: Mapping[str, str]) -> IO[bytes]:
        url = self.nodes.location("PUT", self.path, "CREATE", **how)
        return cast("IO[bytes]", io.BufferedWriter(Upload("PUT", url, self.path), BUFFER_BYTES))

    def _rename(self, target: Self, options: str) -> None:
        self._ask("PUT", "RENAME", destination=target.path, renameoptions=options)

    def _ask(self, method: str, op: str, **given: str) -> dict[str, Any]:
        return self.nodes.ask(method, self.path, op, **given)

    def _status(self) -> dict[str, Any] | None:
        try:
            return dict(self._ask("GET", "GETFILESTATUS")["FileStatus"])
        except FileNotFoundError:
            return None


def hdfs_path(uri: str) -> HdfsPath:
    """Return the path that a URI names; UsageError if it names no file system."""
    parts = urlsplit(uri)
    if not parts.hostname:
        raise UsageError(f"{uri} names no file system", fix="give hdfs://NAMENODE:8020/FOLDER")
    path = "/" + parts.path.strip("/")
    nodes = NameNodes(_name_node_addresses(parts.netloc, parts.hostname, _hdfs_site()), _user())
    return HdfsPath(f"hdfs://{parts.netloc}", path, nodes=nodes)


def _name_node_addresses(name: str, host: str, site: dict[str, str]) -> tuple[str, ...]:
    """Return the HTTP addresses of the name nodes: several with high availability."""
    nodes = [n.strip() for n in site.get(f"dfs.ha.namenodes.{name}", "").split(",") if n.strip()]
    found = [site.get(f"dfs.namenode.http-address.{name}.{node}", "") for node in nodes]
    if any(found):
        return tuple(filter(None, found))
    port = site.get("dfs.namenode.http-address", "").rpartition(":")[2] or _DEFAULT_HTTP_PORT
    return (f"{host}:{port}",)


def _hdfs_site() -> dict[str, str]:
    """Return the settings of `hdfs-site.xml`, or none without HADOOP_CONF_DIR."""
    folder = os.environ.get("HADOOP_CONF_DIR")
    file = Path(folder) / "hdfs-site.xml" if folder else None
    if file is None or not file.exists():
        return {}
    found = ElementTree.parse(file).getroot().iter("property")
    return {p.findtext("name", "").strip(): p.findtext("value", "").strip() for p in found}


def _user() -> str:
    """Return the user that owns new files, chosen as Hadoop's own clients do."""
    return os.environ.get("HADOOP_USER_NAME") or getpass.getuser()
