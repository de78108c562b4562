"""A git repository as the gate reads it: commits, trees, and the history of one file.

Rules: it runs the `git` program, offline, and writes nothing. Every error has a fix. The most
common cause is a shallow clone in CI.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from headworks.errors import UsageError

_TIMEOUT_SECONDS = 120


@dataclass(frozen=True, slots=True)
class FileChange:
    """One commit that touched a file: the commit, its day, and the file's path after it."""

    commit: str
    day: str
    path: str


@dataclass(frozen=True, slots=True)
class Repository:
    """The repository whose work tree is `root`."""

    root: Path

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
        listed = self._ask("ls-tree", "-r", "-z", "--name-only", commit, "--", folder or ".")
        paths = [p for p in (listed or "").split("\0") if p.endswith(".avsc")]
        contents = self.contents([f"{commit}:{path}" for path in paths])
        return {path: text for path, text in zip(paths, contents, strict=True) if text is not None}

    def moves(self, commit: str) -> dict[str, str]:
        """Return the .avsc files that were renamed since `commit`: new path to old path."""
        asked = ("--name-status", "-M", "--diff-filter=R", "-z", commit, "--", "*.avsc")
        parts = (self._ask("diff", *asked) or "").split("\0")
        return dict(zip(parts[2::3], parts[1::3], strict=False))

    def contents(self, names: Sequence[str]) -> Iterator[str | None]:
        """Yield the texts of objects (COMMIT:PATH), from one process; None for missing ones."""
        asked = "".join(f"{name}\n" for name in names)
        answer = _git(self.root, "cat-file", "--batch", stdin=asked.encode()) if names else b""
        if answer is None:
            raise UsageError(f"git cannot read the objects of {self.root}")
        at = 0
        for _ in names:
            end = answer.index(b"\n", at)
            size = answer[at:end].rpartition(b" ")[2]
            if not size.isdigit():
                at = end + 1
                yield None
                continue
            at = end + 1 + int(size)
            yield answer[end + 1 : at].decode("utf-8", "replace").removeprefix("\ufeff")
            at += 1

    def in_order(self, changes: Sequence[FileChange]) -> list[FileChange]:
        """Return the changes of several files in topological order, oldest first."""
        wanted = {change.commit for change in changes}
        listed = self._ask("rev-list", "--topo-order", "--reverse", *sorted(wanted)) or ""
        order = {commit: i for i, commit in enumerate(listed.split()) if commit in wanted}
        return sorted(changes, key=lambda change: order.get(change.commit, -1))

    def changes(self, commit: str, path: str) -> Iterator[FileChange]:
        """Yield the commits up to `commit` that touched the file, newest first, across renames."""
        log = self._ask(
            "log", "--follow", "--format=%x00%H %cs", "--name-only", "-z", commit, "--", path
        )
        # With -z: NUL, "HASH DAY", NUL, newline and the path, NUL, the next.
        parts = [part.strip("\n") for part in (log or "").split("\0")]
        head: str | None = None
        for part in parts:
            if not part:
                continue
            if head is None:
                head = part
            else:
                hash_, _, day = head.partition(" ")
                yield FileChange(hash_, day, part)
                head = None

    def _ask(self, *arguments: str) -> str | None:
        return _text(_git(self.root, *arguments))


def _text(answer: bytes | None) -> str | None:
    return None if answer is None else answer.decode("utf-8", "replace")


def _git(folder: Path, *arguments: str, stdin: bytes = b"") -> bytes | None:
    """Return the output of git, or None if it fails."""
    command = ["git", "-c", "core.quotePath=false", "-C", str(folder), *arguments]
    try:
        done = subprocess.run(
            command, capture_output=True, check=False, timeout=_TIMEOUT_SECONDS, input=stdin
        )
    except FileNotFoundError:
        raise UsageError("git is not installed", fix="install git") from None
    except subprocess.TimeoutExpired:
        raise UsageError(f"git {arguments[0]} took more than {_TIMEOUT_SECONDS} s") from None
    return done.stdout if done.returncode == 0 else None
