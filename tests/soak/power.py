"""A power cut, simulated: whatever was not put on disk is lost.

SIGKILL leaves the page cache whole, so it proves nothing about flushing. Here a broker runs with
`fdatasync` and `fsync` replaced by functions that write down, in a journal, how much of which file
(by inode) and which names of which folder are on disk; `cut_power` then takes everything else away
from a dead broker's folder, each time in one of the ways in which a disk may lose it: cut at the
flushed end, cut anywhere after it, pages of zeros in between, names gone.

Rules:

- A size is read before the real work of a flush begins: what is appended meanwhile is not covered.
  Of two notes the one that was read later counts, even if its flush was done earlier.
- The journal is written before the call returns, so nothing can be answered for before it is noted.
- Only the logs are cut. The coordination store is SQLite's, which syncs by itself, unseen by us.

`python -m tests.soak.power JOURNAL ARGUMENTS...` runs `headworks ARGUMENTS...` in that way.
"""

from __future__ import annotations

import os
import shutil
import stat
import sys
import time
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

_PAGE = 4096


class _Journal:
    """What is on disk, as the runs so far have written it down."""

    def __init__(self, path: Path) -> None:
        self.sizes: dict[int, int] = {}
        self.names: dict[int, set[str]] = {}
        if not path.exists():
            return
        lines = [line.split(" ", 3) for line in path.read_text(encoding="utf-8").splitlines()]
        for _, kind, inode, value in sorted(lines):
            if kind == "file":
                self.sizes[int(inode)] = int(value)
            elif kind == "folder":
                self.names[int(inode)] = set(value.split("/"))
            else:
                self.sizes.pop(int(inode), None)  # unlinked: the number may be given out again
                self.names.pop(int(inode), None)


def cut_power(logs: Path, journal: Path, random: Random) -> int:
    """Take from `logs` what was not on disk; returns how many bytes were lost.

    What is left is on disk, and is written down so: the next cut takes nothing of it.
    """
    known, lost, left = _Journal(journal), 0, []
    for folder in sorted(logs.iterdir()):
        if folder.name not in known.names.get(logs.stat().st_ino, ()) and random.random() < 0.5:
            shutil.rmtree(folder)
            continue
        for path in sorted(folder.iterdir()):
            lost += _cut_file(path, known, random)
        left += [f"file {p.stat().st_ino} {p.stat().st_size}" for p in folder.iterdir()]
        left.append(_listing(folder))
    with journal.open("a", encoding="utf-8") as out:
        out.writelines(f"{_now()} {line}\n" for line in (*left, _listing(logs)))
    return lost


def _now() -> str:
    """The machine's time, which all processes share, as text that sorts."""
    return f"{time.monotonic_ns():020d}"


def _listing(folder: Path) -> str:
    return f"folder {folder.stat().st_ino} {'/'.join(os.listdir(folder))}"


def _cut_file(path: Path, journal: _Journal, random: Random) -> int:
    found = path.stat()
    kept = min(journal.sizes.get(found.st_ino, 0), found.st_size)
    named = path.name in journal.names.get(path.parent.stat().st_ino, ())
    if not named and random.random() < 0.5:
        path.unlink()
        return found.st_size
    fate = random.choice(["flushed", "cut", "zeros", "whole"])
    if fate == "zeros":
        return _zero_pages(path, kept, found.st_size, random)
    ends = {"flushed": kept, "cut": random.randint(kept, found.st_size), "whole": found.st_size}
    os.truncate(path, ends[fate])
    return found.st_size - ends[fate]


def _zero_pages(path: Path, start: int, end: int, random: Random) -> int:
    """Some pages after the flushed end never reached the disk, later ones did."""
    lost = 0
    with path.open("r+b") as file:
        while start < end:
            stop = min(end, (start // _PAGE + 1) * _PAGE)
            if random.random() < 0.5:
                file.seek(start)
                lost += file.write(bytes(stop - start))
            start = stop
    return lost


def _observe(journal: Path) -> None:
    """From now on, this process writes down what it puts on disk."""
    out = os.open(journal, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
    random = Random()
    really_unlink, really_replace = os.unlink, os.replace

    def note(when: str, line: str) -> None:
        os.write(out, f"{when} {line}\n".encode())

    def sync(fd: int) -> None:
        when, found = _now(), os.fstat(fd)
        folder = stat.S_ISDIR(found.st_mode)
        value = "/".join(os.listdir(fd)) if folder else str(found.st_size)
        time.sleep(random.random() ** 4 * 0.05)  # a disk's time, in which others go on writing
        note(when, f"{'folder' if folder else 'file'} {found.st_ino} {value}")

    def forget(path: Any, dir_fd: int | None = None) -> None:
        try:
            found = os.stat(path, dir_fd=dir_fd, follow_symlinks=False)
            note(_now(), f"gone {found.st_ino} -")
        except FileNotFoundError:
            return

    def unlink(path: Any, *, dir_fd: int | None = None) -> None:
        forget(path, dir_fd)
        really_unlink(path, dir_fd=dir_fd)

    def replace(source: Any, target: Any, **places: Any) -> None:
        forget(target)
        really_replace(source, target, **places)

    patches: dict[str, Callable[..., Any]] = {
        "fdatasync": sync,
        "fsync": sync,
        "unlink": unlink,
        "remove": unlink,
        "replace": replace,
    }
    for name, function in patches.items():
        setattr(os, name, function)


if __name__ == "__main__":
    _observe(Path(sys.argv[1]))
    sys.argv[1:] = sys.argv[2:]
    from headworks._cli.main import run

    run()
