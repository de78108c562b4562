"""Where a warehouse's files are, and what a loader does with them: its one way to a file system.

Rules:

- What `pathlib` has a name for is called by that name; what it has none for (only if absent, at
  once, durable) is a function here. No other module of the loader links, renames or removes.
- `create` makes a file whole or not at all, and only one of two that try.
- `move` is its own record: a source that is gone was moved before.
"""

from __future__ import annotations

import os
import shutil
from contextlib import suppress
from pathlib import Path
from typing import IO, Any

from hadoop_loader.durable import sync_folder
from headworks.errors import UsageError

__all__ = [
    "Place",
    "create",
    "keep",
    "link",
    "move",
    "place_of",
    "readable",
    "remove",
    "remove_empty",
    "replace_text",
    "size_of",
    "sync_file",
    "uri_of",
    "writable",
    "write_durably",
]

Place = Path


def place_of(text: str) -> Place:
    """A place by its name, absolute; UsageError for a URI of a file system that is not known."""
    if "://" in text:
        raise UsageError(
            f"warehouse {text} is not a folder of this machine",
            fix="give a local path, of a file system that all of Spark's machines see; other file "
            "systems are not supported yet",
        )
    return Path(text).resolve()


def uri_of(place: Place) -> str:
    """A place as Hadoop takes it: a URI that is not escaped, whatever the name is."""
    return f"file://{place}"


def create(place: Place, text: str) -> None:
    """Make a durable file that was not there; FileExistsError if it was, or another was faster."""
    temporary = _beside(place)
    write_durably(temporary, text)
    try:
        os.link(temporary, place)
    finally:
        temporary.unlink()
    sync_folder(place.parent)


def keep(place: Place, text: str) -> None:
    """Make a durable file, whole or not at all; who else makes it writes the same."""
    temporary = _beside(place)
    write_durably(temporary, text)
    temporary.rename(place)
    sync_folder(place.parent)


def replace_text(place: Place, text: str) -> None:
    """Write a file; whoever reads meanwhile sees the old text or the new one."""
    temporary = _beside(place)
    temporary.write_text(text, encoding="utf-8")
    temporary.rename(place)


def write_durably(place: Place, text: str) -> None:
    """Write a file; its name is durable when its folder is."""
    with place.open("w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())


def sync_file(place: Place) -> None:
    """Make a file durable that something else has written."""
    with place.open("rb") as file:
        os.fsync(file.fileno())


def move(source: Place, target: Place) -> None:
    """Give a file another name, in a folder that is there; FileNotFoundError if it is gone."""
    os.rename(source, target)


def link(source: Place, target: Place) -> None:
    """Put what a file holds under a second name too."""
    os.link(source, target)


def remove(place: Place) -> None:
    """Remove a folder and all in it, as far as it goes; what is gone is no error."""
    shutil.rmtree(place, ignore_errors=True)


def remove_empty(folder: Place) -> None:
    """Remove a folder, if it is there and has nothing in it."""
    with suppress(OSError):
        folder.rmdir()


def size_of(place: Place) -> int:
    """How many bytes a file has."""
    return place.stat().st_size


def readable(place: Place) -> Any:
    """What pyarrow reads a file from."""
    return place


def writable(place: Place) -> IO[bytes]:
    """A new file to write bytes into; it is there when it is closed."""
    return place.open("wb")


def _beside(place: Place) -> Place:
    return place.with_name(f".{place.name}.{os.urandom(6).hex()}")
