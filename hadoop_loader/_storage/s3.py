"""Files and folders of an S3 bucket, with pathlib's methods.

Rules:

- A file is an object. A folder is a common prefix of keys, plus an empty object whose key ends in a
  slash, as S3A writes it, so that empty folders exist.
- S3 has no rename: a file is copied, and the old key is removed. Repeating that after a crash ends
  in the same state, because the content does not change.
- Spark reads the same files by their `s3a://` URI; `spark_settings` says where S3 is.
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

# Looks for credentials where boto3 does.
_CREDENTIALS_PROVIDER = "software.amazon.awssdk.auth.credentials.DefaultCredentialsProvider"


@dataclass(frozen=True, slots=True, order=True)
class S3Path(RemotePath):
    """A path in a bucket; `site` is s3a:// and the name of the bucket."""

    bucket: Bucket = field(compare=False)

    @property
    def key(self) -> str:
        """The key of the object."""
        return self.path.strip("/")

    @property
    def prefix(self) -> str:
        """The prefix of all keys in the folder."""
        return f"{self.key}/" if self.key else ""

    def exists(self) -> bool:
        """Return whether it exists."""
        try:
            self.bucket.head(self.key)
        except FileNotFoundError:
            return self.is_dir()
        return True

    def is_dir(self) -> bool:
        """Return whether it exists and is a folder."""
        return bool(self.bucket.first_keys(self.prefix, 1))

    def length(self) -> int:
        """Return the size of the file in bytes."""
        return self.bucket.head(self.key).size if self.size is None else self.size

    def modified(self) -> float:
        """Return when the file was last written, in seconds, by the store's clock."""
        return self.bucket.head(self.key).modified

    def iterdir(self) -> Iterator[Self]:
        """Iterate over the entries of the folder; FileNotFoundError if it is missing."""
        exists = False
        for one in self.bucket.list_folder(self.prefix):
            exists = True
            if one.name:
                yield self.at(f"{self.path.rstrip('/')}/{one.name}", one.size)
        if not exists:
            raise FileNotFoundError(errno.ENOENT, "no such folder", self.path)

    def mkdir(self, parents: bool = False, exist_ok: bool = False) -> None:  # noqa: ARG002
        """Create the folder; its parents then exist, and an existing one is no error."""
        if self.prefix and not self.is_dir():
            self.bucket.put(self.prefix, b"")

    def write_text(self, text: str, encoding: str = "utf-8") -> int:
        """Write the file in place of an older one."""
        self.bucket.put(self.key, text.encode(encoding))
        return len(text)

    def read_text(self, encoding: str = "utf-8") -> str:
        """Return the content of the file at one moment, even while it is replaced."""
        return self.bucket.get(self.key).data.decode(encoding)

    def create(self, text: str, beside: Self | None = None) -> None:  # noqa: ARG002
        """Create the file whole; FileExistsError if it exists."""
        self.bucket.create(self.key, text.encode())

    def put(self, text: str) -> None:
        """Replace the file, or create it, whole."""
        self.write_text(text)

    def upload(self) -> IO[bytes]:
        """Open the file for writing; until it is closed, its content is on this machine."""
        return cast("IO[bytes]", io.BufferedWriter(_BufferedUpload(self), BUFFER_BYTES))

    def download(self) -> RangeReader:
        """Open the file for reading."""
        return RangeReader(partial(self.bucket.read, self.key), self.length())

    def move(self, target: Self) -> None:
        """Rename the file: copy it, and remove the old key."""
        self.copy(target)
        self.bucket.delete([self.key])

    def copy(self, target: Self) -> None:
        """Copy the file to a second name, in the store."""
        self.bucket.copy(self.key, target.key)

    def unlink(self, missing_ok: bool = False) -> None:
        """Remove the file."""
        if not missing_ok:
            self.bucket.head(self.key)
        self.bucket.delete([self.key])

    def rmdir(self) -> None:
        """Remove the folder, which must be empty."""
        if any(key != self.prefix for key in self.bucket.first_keys(self.prefix, 2)):
            raise OSError(errno.ENOTEMPTY, "folder is not empty", self.path)
        self.bucket.delete([self.prefix])

    def remove_tree(self) -> None:
        """Remove the folder and everything in it, a thousand objects at a time."""
        self.bucket.delete(self.bucket.keys(self.prefix))

    def spark_settings(self) -> Mapping[str, str]:
        """Return the settings with which Spark reads this bucket, and no other."""
        found = {"aws.credentials.provider": _CREDENTIALS_PROVIDER}
        if self.bucket.region:
            found["endpoint.region"] = self.bucket.region
        if self.bucket.endpoint:
            found |= {"endpoint": self.bucket.endpoint, "path.style.access": "true"}
        return {
            f"spark.hadoop.fs.s3a.bucket.{self.bucket.name}.{name}": value
            for name, value in found.items()
        }

    def spark_file_system(self) -> tuple[str, str]:
        """Return the Java class that reads S3, and the package that has it."""
        return "org.apache.hadoop.fs.s3a.S3AFileSystem", "org.apache.hadoop:hadoop-aws"


class _BufferedUpload(io.RawIOBase):
    """A file that is being written: on this machine, until its size is known."""

    def __init__(self, target: S3Path) -> None:
        self._target = target
        self._file = tempfile.TemporaryFile()  # noqa: SIM115 - closed by close()

    def writable(self) -> bool:
        """Return True."""
        return True

    def write(self, data: Any, /) -> int:
        """Write bytes."""
        return self._file.write(data)

    def tell(self) -> int:
        """Return the number of bytes written."""
        return self._file.tell()

    def close(self) -> None:
        """Upload the file; it exists when this returns."""
        if self.closed:
            return
        try:
            self._file.seek(0)
            self._target.bucket.upload(self._target.key, self._file)
        finally:
            super().close()
            self._file.close()


def s3_path(uri: str) -> S3Path:
    """Return the path that an s3:// or s3a:// URI names; UsageError if it names no bucket."""
    parts = urlsplit(uri)
    if not parts.netloc or parts.query or parts.fragment or "@" in parts.netloc:
        raise UsageError(f"{uri} names no folder of a bucket", fix="give s3a://BUCKET/FOLDER")
    path = "/" + parts.path.strip("/")
    return S3Path(f"s3a://{parts.netloc}", path, bucket=open_bucket(parts.netloc))
