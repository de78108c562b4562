"""Every file access of the loader, on this machine, HDFS, or S3.

Rules:

- A path is a `pathlib.Path`, or a `RemotePath` with the same methods. Operations that pathlib lacks
  (create if absent, atomic, durable) are functions here. No other module asks which kind it has,
  except `lock`.
- `create_exclusive` creates a file whole or not at all, and only one of two callers succeeds.
- `rename` records itself: if the source is gone, an earlier attempt has renamed it.
- A path can be sent to Spark's workers: it carries everything that is needed to reach it.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import IO, Any

from hadoop_loader._storage.hdfs import hdfs_path
from hadoop_loader._storage.remote_path import RemotePath
from hadoop_loader._storage.s3 import s3_path
from headworks import _system_calls
from headworks._atomic_file import replace_file, sync_folder, write_file
from headworks.errors import UsageError

AnyPath = Path | RemotePath


def parse_path(text: str) -> AnyPath:
    """Return the absolute path that a text names; UsageError for an unknown kind of URI."""
    if text.startswith("hdfs://"):
        return hdfs_path(text)
    if text.startswith(("s3://", "s3a://")):
        return s3_path(text)
    if "://" in text:
        raise UsageError(
            f"warehouse {text} is neither a folder of this machine nor of HDFS or S3",
            fix="give a local path, of a file system that all of Spark's machines see, "
            "hdfs://NAMENODE:8020/FOLDER or s3a://BUCKET/FOLDER; others are not supported",
        )
    return Path(text).resolve()


def hadoop_uri(path: AnyPath) -> str:
    """Return a path as Hadoop takes it: a URI without escapes, whatever the name is."""
    return f"file://{path}" if isinstance(path, Path) else str(path)


def create_exclusive(path: AnyPath, text: str, *, beside: AnyPath | None = None) -> None:
    """Create a durable file; FileExistsError if it exists, also if another caller was faster.

    `beside` is the folder in which it is written before it gets its name. If that folder is gone,
    FileNotFoundError is raised.
    """
    if not isinstance(path, Path):
        path.create(text, None if beside is None else _remote(beside))
        return
    temporary = _temporary_path(path, beside)
    write_durably(temporary, text)
    try:
        os.link(temporary, path)
    finally:
        temporary.unlink()
    sync_folder(path.parent)


def write_atomically(path: AnyPath, text: str, *, durable: bool) -> None:
    """Replace a file: readers see the old text or the new one, whole.

    If `durable`, the text and its name survive a power cut when this returns.
    """
    if not isinstance(path, Path):
        path.put(text)
        return
    replace_file(path, text, durable=durable, temporary=_temporary_path(path))


def write_durably(path: AnyPath, text: str) -> None:
    """Write a file in place; its name is durable when its folder is synced."""
    if not isinstance(path, Path):
        path.write_text(text, encoding="utf-8")
        return
    write_file(path, text)


def sync_file(path: AnyPath) -> None:
    """Make a file durable that another program has written."""
    if isinstance(path, Path):
        with path.open("rb") as file:
            _system_calls.sync(file.fileno())


def sorted_glob(folder: AnyPath, pattern: str) -> list[AnyPath]:
    """Return the entries of a folder that match, sorted; none if the folder is missing."""
    found: list[AnyPath] = [*folder.glob(pattern)]
    return sorted(found, key=str)


def rename(source: AnyPath, target: AnyPath) -> None:
    """Move a file into an existing folder; FileNotFoundError if the source is gone."""
    if isinstance(source, Path):
        os.rename(source, str(target))
    else:
        source.move(_remote(target))


def link_or_copy(source: AnyPath, target: AnyPath) -> None:
    """Give a file a second name: by a hard link, or by a copy on a remote file system."""
    if isinstance(source, Path):
        os.link(source, str(target))
    else:
        source.copy(_remote(target))


def remove_tree(path: AnyPath) -> None:
    """Remove a folder and everything in it, as far as possible; a missing one is no error."""
    if isinstance(path, Path):
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.remove_tree()


def remove_empty(folder: AnyPath) -> None:
    """Remove a folder, if it exists and is empty."""
    with suppress(OSError):
        folder.rmdir()


def file_size(path: AnyPath) -> int:
    """Return the size of a file in bytes."""
    return path.stat().st_size if isinstance(path, Path) else path.length()


def modified_time(path: AnyPath) -> float:
    """Return when a file was last written, in seconds since the epoch."""
    return path.stat().st_mtime if isinstance(path, Path) else path.modified()


def read_bytes(path: AnyPath) -> bytes:
    """Return the content of a file, of a remote one in a single request."""
    if isinstance(path, Path):
        return path.read_bytes()
    return path.download().read(path.length()) or b""


def parquet_source(path: AnyPath) -> Any:
    """Return what pyarrow can read a file from."""
    return path if isinstance(path, Path) else path.download()


def open_for_write(path: AnyPath) -> IO[bytes]:
    """Open a new file for bytes; a remote one exists when it is closed."""
    return path.open("wb") if isinstance(path, Path) else path.upload()


def spark_settings(path: AnyPath) -> Mapping[str, str]:
    """Return the settings with which Spark reads a path."""
    return {} if isinstance(path, Path) else path.spark_settings()


def spark_file_system(path: AnyPath) -> tuple[str, str] | None:
    """Return the Java class that reads a path, and its package, unless Spark includes it."""
    return None if isinstance(path, Path) else path.spark_file_system()


def _temporary_path(path: Path, folder: AnyPath | None = None) -> Path:
    """Return an unused name, beside `path` or in `folder`, for a file that is being written."""
    beside = path.parent if folder is None else Path(str(folder))
    return beside / f".{path.name}.{os.urandom(6).hex()}"


def _remote(path: AnyPath) -> RemotePath:
    """Return a path that must be of a remote file system."""
    assert isinstance(path, RemotePath)
    return path
