"""Texts stored by their fingerprint: schemas, field ids, the folders of relocated partitions.

Rules: a text is durable before `put` returns, so a commit record may name it. The fingerprint is
the SHA-256 of the text, so writing one twice is harmless, and a damaged one is CorruptError.
"""

from __future__ import annotations

import hashlib
from collections.abc import Container

from hadoop_loader._commit.commit_record import corrupt_error
from hadoop_loader._commit.log_files import read_text
from hadoop_loader._storage.filesystem import AnyPath, modified_time, write_atomically


def fingerprint(text: str) -> str:
    """Return the SHA-256 of a text, in hexadecimal."""
    return hashlib.sha256(text.encode()).hexdigest()


class TextStore:
    """The texts in `folder`, one file each, named by fingerprint and `suffix`."""

    def __init__(self, folder: AnyPath, suffix: str) -> None:
        self._folder = folder  # created by the first `put`
        self._suffix = suffix
        self._known: dict[str, str] = {}  # texts read or written before, by fingerprint

    def put(self, text: str) -> str:
        """Store a text durably, and return its fingerprint."""
        key = fingerprint(text)
        path = self._path(key)
        if key not in self._known and not path.exists():
            self._folder.mkdir(exist_ok=True)
            write_atomically(path, text, durable=True)
        self._known[key] = text
        return key

    def get(self, key: str) -> str:
        """Return the text of a fingerprint; CorruptError if it is missing or damaged."""
        if key not in self._known:
            path = self._path(key)
            text = read_text(path) if path.exists() else ""
            if fingerprint(text) != key:
                raise corrupt_error(path)
            self._known[key] = text
        return self._known[key]

    def remove_unused(self, used: Container[str], before: float) -> None:
        """Remove texts that are not `used` and were written before a time in seconds."""
        for path in self._folder.glob(f"[!.]*{self._suffix}"):
            if path.stem not in used and modified_time(path) <= before:
                path.unlink()

    def _path(self, key: str) -> AnyPath:
        return self._folder / f"{key}{self._suffix}"
