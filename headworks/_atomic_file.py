"""Atomic writes of small files: after a crash, the file holds its old content or the new one.

Rules:

- The content is written to a temporary file in the same folder and renamed over the target. A crash
  in between leaves the target unchanged, and perhaps the temporary file beside it.
- A durable write calls fsync on the file before the rename and on the folder after it. When it
  returns, the new content survives a power cut.
- If anything fails, the temporary file is removed, the target is unchanged, and OSError is raised.
  One failure comes after the rename: if the folder cannot be synced, the target may be either.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from headworks import _system_calls


def replace_file(
    path: Path,
    content: bytes | str,
    *,
    mode: int | None = None,
    durable: bool = True,
    temporary: Path | None = None,
) -> None:
    """Replace the file `path`, or create it, with `content`. Text is encoded as UTF-8.

    `mode` sets the permission bits; by default the umask decides. If `durable` is false, nothing is
    synced: a power cut may leave an empty or partial file. `temporary` is `<name>-new` by default.
    If several processes may replace the file at once, each must pass a `temporary` of its own.
    """
    temporary = path.with_name(f"{path.name}-new") if temporary is None else temporary
    try:
        write_file(temporary, content, mode=mode, durable=durable)
        os.replace(temporary, path)
    except Exception:
        with contextlib.suppress(OSError):
            temporary.unlink()
        raise
    if durable:
        sync_folder(path.parent)


def write_file(
    path: Path, content: bytes | str, *, mode: int | None = None, durable: bool = True
) -> None:
    """Write a file in place. If `durable`, its bytes are on disk, but not yet its name."""
    data = content.encode() if isinstance(content, str) else content
    fd = os.open(
        path,
        os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC,
        0o666 if mode is None else 0o600,  # never wider than `mode`, not even for a moment
    )
    with open(fd, "wb") as file:
        if mode is not None:
            os.fchmod(fd, mode)
        file.write(data)
        file.flush()
        if durable:
            _system_calls.sync(fd)


def sync_folder(folder: Path) -> None:
    """Put the names in a folder on disk."""
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        _system_calls.sync(fd)
    finally:
        os.close(fd)
