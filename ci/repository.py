"""A git repository as the gate reads it: commits, trees, and the history of one file.

Rules: it runs the `git` program, offline, and writes nothing. Every error has a fix. The most
common cause is a shallow clone in CI.
"""

from __future__ import annotations

import os
import subprocess
import weakref
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, cast

from headworks.errors import UsageError

_TIMEOUT_SECONDS = 120
# Objects that are asked for at once. Their names fit into a pipe, and git reads all of them before
# it waits for us to read its answers.
_MAX_ASKED = 64


@dataclass(frozen=True, slots=True)
class FileChange:
    """One commit that changed a file: the commit, its day, and the file's path after it."""

    commit: str
    day: str
    path: str
    blob: str | None  # the id of the content; None if the file was deleted
    order: int  # 0 for the newest change; a commit has a greater one than its descendants
    source: str | None = None  # the path before, if the file was renamed
    added: bool = False  # there was no file of that path before


class ObjectReader:
    """One `git cat-file` process that reads any number of objects."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._process: subprocess.Popen[bytes] | None = None
        self._owner = 0  # the process that talks to it: a fork starts its own

    def texts(self, names: Sequence[str | None]) -> Iterator[str | None]:
        """Yield the texts of objects (an id, or COMMIT:PATH), None for missing ones and None."""
        for at in range(0, len(names), _MAX_ASKED):
            yield from self._ask(names[at : at + _MAX_ASKED])

    def _ask(self, names: Sequence[str | None]) -> list[str | None]:
        process = self._process
        if process is None or self._owner != os.getpid():
            process = self._start()
        reading, writing = cast(IO[bytes], process.stdout), cast(IO[bytes], process.stdin)
        # A path with a line end cannot be asked for: its file counts as missing.
        lines = [b"missing" if name is None or "\n" in name else name.encode() for name in names]
        try:
            writing.write(b"".join(line + b"\n" for line in lines))
            writing.flush()
            return [_object(reading) for _ in names]
        except (OSError, ValueError):
            raise UsageError(f"git cannot read the objects of {self._root}") from None

    def _start(self) -> subprocess.Popen[bytes]:
        process = self._process = _started(_command(self._root, "cat-file", "--batch"))
        self._owner = os.getpid()
        weakref.finalize(self, _end, process)
        return process


@dataclass(frozen=True, slots=True)
class Repository:
    """The repository whose work tree is `root`."""

    root: Path
    objects: ObjectReader = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "objects", ObjectReader(self.root))

    @classmethod
    def around(cls, path: Path) -> Repository:
        """Return the repository that contains `path`; UsageError if there is none."""
        folder = (path if path.is_dir() else path.parent).resolve()
        found = _text(_git(folder, "rev-parse", "--show-toplevel"))
        if found is None:
            raise UsageError(
                f"{path} is not in a git repository",
                fix="use --against registry:URL, or run it inside the repository",
            )
        return cls(Path(found.strip()))

    def relative(self, path: Path) -> str:
        """Return the path of a file or folder inside the repository, as git writes it."""
        return path.resolve().relative_to(self.root.resolve()).as_posix()

    def merge_base(self, ref: str) -> str:
        """Return the merge base of HEAD and `ref`; UsageError if git finds none."""
        if self._ask("rev-parse", "--verify", "--quiet", f"{ref}^{{commit}}") is None:
            raise UsageError(
                f"git knows no {ref!r} in {self.root}",
                fix=f"fetch it (git fetch origin {ref.removeprefix('origin/')}), or name another",
            )
        found = self._ask("merge-base", "HEAD", ref)
        if found is None:
            fix = "they share no commit"
            if self.is_shallow():
                fix = "the clone is shallow: git fetch --unshallow (in CI: fetch-depth: 0)"
            raise UsageError(f"HEAD and {ref!r} have no common commit", fix=fix)
        return found.strip()

    def is_shallow(self) -> bool:
        """Return whether part of the history is missing."""
        return (self._ask("rev-parse", "--is-shallow-repository") or "").strip() == "true"

    def texts(self, commit: str, folder: str) -> dict[str, str]:
        """Return the .avsc files at or below `folder` in `commit`, by path in the repository."""
        listed = self._ask("ls-tree", "-r", "-z", commit, "--", folder or ".") or ""
        blobs = {}
        for entry in listed.split("\0"):
            about, _, path = entry.partition("\t")
            if path.endswith(".avsc"):
                blobs[path] = about.rpartition(" ")[2]
        texts = self.objects.texts(list(blobs.values()))
        return {path: text for path, text in zip(blobs, texts, strict=True) if text is not None}

    def moves(self, commit: str) -> dict[str, str]:
        """Return the .avsc files that were renamed since `commit`: new path to old path."""
        asked = ("--name-status", "-M", "--diff-filter=R", "-z", commit, "--", "*.avsc")
        parts = (self._ask("diff", *asked) or "").split("\0")
        return dict(zip(parts[2::3], parts[1::3], strict=False))

    def log(self, commit: str, paths: Sequence[str]) -> Iterator[FileChange]:
        """Yield the changes of the files that `paths` match, up to `commit`, the newest first.

        Parallel commits stay together (topological order). A merge changes the files that differ
        from all of its parents.
        """
        shown = ("--raw", "-c", "-M", "-l0", "-z", "--no-abbrev", "--no-color", "--format=%H %cs")
        walked = ("--topo-order", "--full-history", commit, "--", *paths)
        listed = self._ask("-c", "log.showSignature=false", "log", *shown, *walked)
        return _changes(self._read(listed))

    def renames(self, commits: Iterable[str]) -> dict[tuple[str, str], str]:
        """Return the files of any name that these commits renamed: (commit, new path) to old."""
        shown = ("-r", "-M", "--diff-filter=R", "--raw", "-z", "--no-abbrev")
        asked = "".join(f"{commit}\n" for commit in commits).encode()
        listed = _text(_git(self.root, "diff-tree", "--stdin", *shown, stdin=asked))
        changes = _changes(self._read(listed))
        return {(one.commit, one.path): one.source for one in changes if one.source is not None}

    def day(self, commit: str) -> str:
        """Return the day of a commit."""
        return (self._ask("show", "--no-patch", "--format=%cs", commit) or "").strip()

    def _read(self, history: str | None) -> str:
        """Return the history that git gave; UsageError if it failed."""
        if history is None:
            raise UsageError(f"git cannot read the history of {self.root}")
        return history

    def _ask(self, *arguments: str) -> str | None:
        return _text(_git(self.root, *arguments))


def _text(answer: bytes | None) -> str | None:
    return None if answer is None else answer.decode("utf-8", "replace")


def _changes(listed: str) -> Iterator[FileChange]:
    """Parse raw output with -z: a commit, and its changes as `:MODES IDS STATUS`, NUL, and paths.

    The change of a merge begins with a colon for each parent, and has one path.
    """
    parts = iter(listed.split("\0"))
    commit, day, order = "", "", -1
    for part in parts:
        entry = part.lstrip("\n")
        if not entry.startswith(":"):
            if entry:
                order += 1
                commit, _, day = entry.partition(" ")
            continue
        *_, blob, status = entry.split(" ")
        path, source = next(parts), None
        if status[0] == "R" and not entry.startswith("::"):
            source, path = path, next(parts)
        gone = not blob.strip("0")
        yield FileChange(
            *(commit, day, path, None if gone else blob, order), source, added=status == "A"
        )


def _object(reading: IO[bytes]) -> str | None:
    """Return the next object of `git cat-file --batch`, or None if it is missing."""
    head = reading.readline()
    if not head.endswith(b"\n"):
        raise ValueError("the process has ended")
    size = head.rpartition(b" ")[2].strip()
    if not size.isdigit():
        return None
    content = reading.read(int(size) + 1)[:-1]
    return content.decode("utf-8", "replace").removeprefix("\ufeff")


def _end(process: subprocess.Popen[bytes]) -> None:
    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
            pipe.close()
    process.wait()


def _command(folder: Path, *arguments: str) -> list[str]:
    return ["git", "-c", "core.quotePath=false", "-C", str(folder), *arguments]


def _started(command: Sequence[str]) -> subprocess.Popen[bytes]:
    try:
        return subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )
    except FileNotFoundError:
        raise UsageError("git is not installed", fix="install git") from None


def _git(folder: Path, *arguments: str, stdin: bytes = b"") -> bytes | None:
    """Return the output of git, or None if it fails."""
    process = _started(_command(folder, *arguments))
    try:
        done, _ = process.communicate(stdin, _TIMEOUT_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.communicate()
        raise UsageError(f"git {arguments[0]} took more than {_TIMEOUT_SECONDS} s") from None
    return done if process.returncode == 0 else None
