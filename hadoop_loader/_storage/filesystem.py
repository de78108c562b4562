"""Where a warehouse's files are, and what a loader does with them: its one way to a file system.

Rules:

- A place is a path of this machine, or one of HDFS or S3 that answers to the same names. What
  `pathlib` has no name for (only if absent, at once, durable) is a function here; no other module
  of the loader asks which it works with, but for who holds a warehouse (`lock`).
- `create` makes a file whole or not at all, and only one of two that try.
- `move` is its own record: a source that is gone was moved before.
- A place goes to Spark's workers as it is: what it needs to be reached, it carries.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import IO, Any

from hadoop_loader._storage import fsync
from hadoop_loader._storage.hdfs import hdfs_path
from hadoop_loader._storage.remote_path import RemotePath
from hadoop_loader._storage.s3 import s3_path
from headworks.errors import UsageError

__all__ = [
    "Place",
    "Syncing",
    "create",
    "keep",
    "link",
    "matching",
    "modified",
    "move",
    "place_of",
    "readable",
    "remove",
    "remove_empty",
    "replace_text",
    "size_of",
    "spark_needs",
    "spark_settings",
    "sync_file",
    "sync_folder",
    "sync_folders",
    "uri_of",
    "writable",
    "write_durably",
]

Place = Path | RemotePath


class Syncing(fsync.Syncing):
    """Makes places durable while its owner does something else.

    Those of others are: a file when it is closed, a name when it is given.
    """

    def add(self, place: Place) -> None:
        """Begin with this file or folder."""
        if isinstance(place, Path):
            super().add(place)


def place_of(text: str) -> Place:
    """A place by its name, absolute; UsageError for a URI of a file system that is not known."""
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


def uri_of(place: Place) -> str:
    """A place as Hadoop takes it: a URI that is not escaped, whatever the name is."""
    return f"file://{place}" if isinstance(place, Path) else str(place)


def create(place: Place, text: str, *, beside: Place | None = None) -> None:
    """Make a durable file that was not there; FileExistsError if it was, or another was faster.

    `beside`: where it is written before it gets its name; FileNotFoundError if that is gone.
    """
    if not isinstance(place, Path):
        place.create(text, None if beside is None else _there(beside))
        return
    temporary = _unnamed(place, beside)
    write_durably(temporary, text)
    try:
        os.link(temporary, place)
    finally:
        temporary.unlink()
    sync_folder(place.parent)


def keep(place: Place, text: str) -> None:
    """Make a durable file, whole or not at all; who else makes it writes the same."""
    if not isinstance(place, Path):
        place.put(text)
        return
    temporary = _unnamed(place)
    write_durably(temporary, text)
    temporary.rename(place)
    sync_folder(place.parent)


def replace_text(place: Place, text: str) -> None:
    """Write a file; whoever reads meanwhile sees the old text or the new one."""
    if not isinstance(place, Path):
        place.put(text)
        return
    temporary = _unnamed(place)
    temporary.write_text(text, encoding="utf-8")
    temporary.rename(place)


def write_durably(place: Place, text: str) -> None:
    """Write a file; its name is durable when its folder is."""
    if not isinstance(place, Path):
        place.write_text(text, encoding="utf-8")
        return
    with place.open("w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())


def sync_file(place: Place) -> None:
    """Make a file durable that something else has written."""
    if isinstance(place, Path):
        with place.open("rb") as file:
            os.fsync(file.fileno())


def sync_folder(folder: Place) -> None:
    """Make the names in a folder durable."""
    if isinstance(folder, Path):
        fsync.sync_folder(folder)


def sync_folders(folders: Iterable[Place]) -> None:
    """Make the names in all these folders durable."""
    fsync.sync_folders([folder for folder in folders if isinstance(folder, Path)])


def matching(folder: Place, pattern: str) -> list[Place]:
    """What is in a folder and has such a name, in order; nothing if the folder is gone."""
    found: list[Place] = [*folder.glob(pattern)]
    return sorted(found, key=str)


def move(source: Place, target: Place) -> None:
    """Give a file another name, in a folder that is there; FileNotFoundError if it is gone."""
    if isinstance(source, Path):
        os.rename(source, str(target))
    else:
        source.move(_there(target))


def link(source: Place, target: Place) -> None:
    """Put what a file holds under a second name too; where no file has two, it is copied."""
    if isinstance(source, Path):
        os.link(source, str(target))
    else:
        source.copy(_there(target))


def remove(place: Place) -> None:
    """Remove a folder and all in it, as far as it goes; what is gone is no error."""
    if isinstance(place, Path):
        shutil.rmtree(place, ignore_errors=True)
    else:
        place.remove_tree()


def remove_empty(folder: Place) -> None:
    """Remove a folder, if it is there and has nothing in it."""
    with suppress(OSError):
        folder.rmdir()


def size_of(place: Place) -> int:
    """How many bytes a file has."""
    return place.stat().st_size if isinstance(place, Path) else place.length()


def modified(place: Place) -> float:
    """When a file was last written, in seconds."""
    return place.stat().st_mtime if isinstance(place, Path) else place.modified()


def readable(place: Place) -> Any:
    """What pyarrow reads a file from."""
    return place if isinstance(place, Path) else place.download()


def writable(place: Place) -> IO[bytes]:
    """A new file to write bytes into; it is there when it is closed."""
    return place.open("wb") if isinstance(place, Path) else place.upload()


def spark_settings(place: Place) -> Mapping[str, str]:
    """What Spark has to be told to read there."""
    return {} if isinstance(place, Path) else place.spark_settings()


def spark_needs(place: Place) -> tuple[str, str] | None:
    """The class that Spark reads it by, and its package, if that is not of Spark itself."""
    return None if isinstance(place, Path) else place.spark_needs()


def _unnamed(place: Path, folder: Place | None = None) -> Path:
    """Where a file is written that is to appear as `place`, at once."""
    beside = place.parent if folder is None else Path(str(folder))
    return beside / f".{place.name}.{os.urandom(6).hex()}"


def _there(place: Place) -> RemotePath:
    """A place of another machine, in whose file system another one is."""
    assert isinstance(place, RemotePath)
    return place
