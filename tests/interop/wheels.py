"""Python packages of others that one test needs: fetched by pip into a cache, and never installed.

Rule: a file in the project pins each package and its hash.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import subprocess
import sys
import tempfile
from pathlib import Path

_DEADLINE_SECONDS = 180


def fetch(wanted: Path, *options: str) -> Path:
    """Return a folder with the packages of a requirements file, from the cache if it has them.

    `options` are further options of `pip install`.
    """
    home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "headworks"
    folder = home / f"{wanted.stem}-{hashlib.sha256(wanted.read_bytes()).hexdigest()[:8]}"
    home.mkdir(parents=True, exist_ok=True)
    with (home / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not folder.is_dir():
            with tempfile.TemporaryDirectory(dir=home) as temporary:
                target = Path(temporary) / "package"
                _install(target, wanted, options)
                target.rename(folder)
    return folder


def _install(target: Path, wanted: Path, options: tuple[str, ...]) -> None:
    pip = (sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check")
    which = ("--no-deps", "--only-binary=:all:", "--require-hashes", "-r", str(wanted))
    done = subprocess.run(
        [*pip, *options, *which, "--target", str(target)],
        capture_output=True,
        text=True,
        timeout=_DEADLINE_SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stderr
