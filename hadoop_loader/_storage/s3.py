"""A file or folder in a bucket of S3, by the names that pathlib has for what is done with one.

Rules:

- A file is an object. A folder is what keys have in common, and an object of its own, as S3A has
  it: a key that ends in a slash, so that a folder with nothing in it is there.
- There is no rename: a file is copied, and then removed under its old name. What it holds does not
  change, so doing that again, from anywhere between, ends in the same.
- Spark reads the same files by their `s3a://` URI, and is told where S3 is.
"""

from __future__ import annotations

import errno
import io
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import IO, Any, Self, cast
from urllib.parse import urlsplit

from hadoop_loader._storage.object_store import Bucket, open_bucket
from hadoop_loader._storage.remote_path import BUFFER_BYTES, RangeReader, RemotePath
from headworks.errors import UsageError

__all__ = ["S3Path", "s3_path"]

# Finds credentials where boto3 does.
_CREDENTIALS_PROVIDER = "software.amazon.awssdk.auth.credentials.DefaultCredentialsProvider"


@dataclass(frozen=True, slots=True, order=True)
class S3Path(RemotePath):
    """`site`: s3a:// and the name of the bucket."""

    bucket: Bucket = field(compare=False)

    @property
    def key(self) -> str:
        """What the object is called."""
        return self.path.strip("/")

    @property
    def prefix(self) -> str:
        """What the keys of all that is in the folder begin with."""
        return f"{self.key}/" if self.key else ""

    def exists(self) -> bool:
        """Whether it is there."""
        try:
            self.bucket.head(self.key)
        except FileNotFoundError:
            return self.is_dir()
        return True

    def is_dir(self) -> bool:
        """Whether it is there, and a folder."""
        return bool(self.bucket.first_keys(self.prefix, 1))

    def length(self) -> int:
        """How many bytes the file has."""
        return self.bucket.head(self.key).size if self.size is None else self.size

    def modified(self) -> float:
        """When the file was last written, in seconds, by the store's clock."""
        return self.bucket.head(self.key).modified

    def iterdir(self) -> Iterator[Self]:
        """What is in the folder; FileNotFoundError if it is not there."""
        there = False
        for one in self.bucket.list_folder(self.prefix):
            there = True
            if one.name:
                yield self.at(f"{self.path.rstrip('/')}/{one.name}", one.size)
        if not there:
            raise FileNotFoundError(errno.ENOENT, "no such folder", self.path)

    def mkdir(self, parents: bool = False, exist_ok: bool = False) -> None:  # noqa: ARG002
        """Make the folder; those that it is in are there then too, and one that is there stays."""
        if self.prefix and not self.is_dir():
            self.bucket.put(self.prefix, b"")

    def write_text(self, text: str, encoding: str = "utf-8") -> int:
        """Write the file, over what it held."""
        self.bucket.put(self.key, text.encode(encoding))
        return len(text)

    def read_text(self, encoding: str = "utf-8") -> str:
        """What the file holds, or held: all of it of one moment."""
        return self.bucket.get(self.key).data.decode(encoding)

    def create(self, text: str, beside: Self | None = None) -> None:  # noqa: ARG002
        """Make the file whole; FileExistsError if it is there."""
        self.bucket.create(self.key, text.encode())

    def put(self, text: str) -> None:
        """Make the file whole, in the place of one that may be there."""
        self.write_text(text)

    def upload(self) -> IO[bytes]:
        """The file, to be written; it is there when it is closed, until then on this machine."""
        return cast("IO[bytes]", io.BufferedWriter(_BufferedUpload(self), BUFFER_BYTES))

    def download(self) -> RangeReader:
        """The file, to be read."""
        return RangeReader(partial(self.bucket.read, self.key), self.length())

    def move(self, target: Self) -> None:
        """Give it another name."""
        self.copy(target)
        self.bucket.delete([self.key])

    def copy(self, target: Self) -> None:
        """Put what it holds under a second name, without reading it."""
        self.bucket.copy(self.key, target.key)

    def unlink(self, missing_ok: bool = False) -> None:
        """Remove the file."""
        if not missing_ok:
            self.bucket.head(self.key)
        self.bucket.delete([self.key])

    def rmdir(self) -> None:
        """Remove the folder, which is empty."""
        if any(key != self.prefix for key in self.bucket.first_keys(self.prefix, 2)):
            raise OSError(errno.ENOTEMPTY, "folder is not empty", self.path)
        self.bucket.delete([self.prefix])

    def remove_tree(self) -> None:
        """Remove the folder and all in it, one thousand after the other."""
        self.bucket.delete(self.bucket.keys(self.prefix))

    def spark_settings(self) -> Mapping[str, str]:
        """What Spark has to know to read here, for this bucket alone."""
        found = {"aws.credentials.provider": _CREDENTIALS_PROVIDER}
        if self.bucket.region:
            found["endpoint.region"] = self.bucket.region
        if self.bucket.endpoint:
            found |= {"endpoint": self.bucket.endpoint, "path.style.access": "true"}
        return {
            f"spark.hadoop.fs.s3a.bucket.{self.bucket.name}.{name}": value
            for name, value in found.items()
        }

    def spark_needs(self) -> tuple[str, str]:
        """The class that Spark reads it by, and the package of Hadoop's release that has it."""
        return "org.apache.hadoop.fs.s3a.S3AFileSystem", "org.apache.hadoop:hadoop-aws"


class _BufferedUpload(io.RawIOBase):
    """A file that is being written: here, until its size is known."""

    def __init__(self, target: S3Path) -> None:
        self._target = target
        self._file = tempfile.TemporaryFile()  # noqa: SIM115 - closed by close()

    def writable(self) -> bool:
        """It is."""
        return True

    def write(self, data: Any, /) -> int:
        """Write bytes."""
        return self._file.write(data)

    def tell(self) -> int:
        """How many bytes were written."""
        return self._file.tell()

    def close(self) -> None:
        """Say that this is all; returns when the file is there."""
        if self.closed:
            return
        try:
            self._file.seek(0)
            self._target.bucket.upload(self._target.key, self._file)
        finally:
            super().close()
            self._file.close()


def s3_path(uri: str) -> S3Path:
    """A place by its URI, s3:// or s3a://; UsageError if that names no bucket."""
    parts = urlsplit(uri)
    if not parts.netloc or parts.query or parts.fragment or "@" in parts.netloc:
        raise UsageError(f"{uri} names no folder of a bucket", fix="give s3a://BUCKET/FOLDER")
    path = "/" + parts.path.strip("/")
    return S3Path(f"s3a://{parts.netloc}", path, bucket=open_bucket(parts.netloc))
