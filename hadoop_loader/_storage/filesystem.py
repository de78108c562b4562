"""Where a warehouse's files are, and what a loader does with them: its one way to a file system.

Rules:

- A path is a path of this machine, or one of HDFS or S3 that answers to the same names. What
  `pathlib` has no name for (only if absent, at once, durable) is a function here; no other module
  of the loader asks which it works with, but for who holds a warehouse (`lock`).
- `create` makes a file whole or not at all, and only one of two that try.
- `move` is its own record: a source that is gone was moved before.
- A path goes to Spark's workers as it is: what it needs to be reached, it carries.
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
from headworks._atomic_file import replace_file, sync_folder, write_file
from headworks.errors import UsageError

__all__ = [
    "AnyPath",
    "create_exclusive",
    "file_size",
    "hadoop_uri",
    "link_or_copy",
    "modified_time",
    "open_for_write",
    "parquet_source",
    "parse_path",
    "remove_empty",
    "remove_tree",
    "rename",
    "sorted_glob",
    "spark_file_system",
    "spark_settings",
    "sync_file",
    "write_atomically",
    "write_durably",
]

AnyPath = Path | RemotePath


def parse_path(text: str) -> AnyPath:
    """A path by its name, absolute; UsageError for a URI of a file system that is not known."""
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
    """A path as Hadoop takes it: a URI that is not escaped, whatever the name is."""
    return f"file://{path}" if isinstance(path, Path) else str(path)


def create_exclusive(path: AnyPath, text: str, *, beside: AnyPath | None = None) -> None:
    """Make a durable file that was not there; FileExistsError if it was, or another was faster.

    `beside`: where it is written before it gets its name; FileNotFoundError if that is gone.
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
    """Write a file, replacing an older one; readers see the old text or the new one, whole.

    `durable`: return when the text and the name would survive a power cut.
    """
    if not isinstance(path, Path):
        path.put(text)
        return
    replace_file(path, text, durable=durable, temporary=_temporary_path(path))


def write_durably(path: AnyPath, text: str) -> None:
    """Write a file; its name is durable when its folder is."""
    if not isinstance(path, Path):
        path.write_text(text, encoding="utf-8")
        return
    write_file(path, text)


def sync_file(path: AnyPath) -> None:
    """Make a file durable that something else has written."""
    if isinstance(path, Path):
        with path.open("rb") as file:
            os.fsync(file.fileno())


def sorted_glob(folder: AnyPath, pattern: str) -> list[AnyPath]:
    """What is in a folder and has such a name, in order; nothing if the folder is gone."""
    found: list[AnyPath] = [*folder.glob(pattern)]
    return sorted(found, key=str)


def rename(source: AnyPath, target: AnyPath) -> None:
    """Give a file another name, in a folder that is there; FileNotFoundError if it is gone."""
    if isinstance(source, Path):
        os.rename(source, str(target))
    else:
        source.move(_remote(target))


def link_or_copy(source: AnyPath, target: AnyPath) -> None:
    """Put what a file holds under a second name too; where no file has two, it is copied."""
    if isinstance(source, Path):
        os.link(source, str(target))
    else:
        source.copy(_remote(target))


def remove_tree(path: AnyPath) -> None:
    """Remove a folder and all in it, as far as it goes; what is gone is no error."""
    if isinstance(path, Path):
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.remove_tree()


def remove_empty(folder: AnyPath) -> None:
    """Remove a folder, if it is there and has nothing in it."""
    with suppress(OSError):
        folder.rmdir()


def file_size(path: AnyPath) -> int:
    """How many bytes a file has."""
    return path.stat().st_size if isinstance(path, Path) else path.length()


def modified_time(path: AnyPath) -> float:
    """When a file was last written, in seconds."""
    return path.stat().st_mtime if isinstance(path, Path) else path.modified()


def parquet_source(path: AnyPath) -> Any:
    """What pyarrow reads a file from."""
    return path if isinstance(path, Path) else path.download()


def open_for_write(path: AnyPath) -> IO[bytes]:
    """A new file to write bytes into; it is there when it is closed."""
    return path.open("wb") if isinstance(path, Path) else path.upload()


def spark_settings(path: AnyPath) -> Mapping[str, str]:
    """What Spark has to be told to read there."""
    return {} if isinstance(path, Path) else path.spark_settings()


def spark_file_system(path: AnyPath) -> tuple[str, str] | None:
    """The class that Spark reads it by, and its package, if that is not of Spark itself."""
    return None if isinstance(path, Path) else path.spark_needs()


def _temporary_path(path: Path, folder: AnyPath | None = None) -> Path:
    """Where a file is written that is to appear as `path`, at once."""
    beside = path.parent if folder is None else Path(str(folder))
    return beside / f".{path.name}.{os.urandom(6).hex()}"


def _remote(path: AnyPath) -> RemotePath:
    """A path of another machine, in whose file system another one is."""
    assert isinstance(path, RemotePath)
    return path
