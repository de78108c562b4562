"""Servers of others that the tests hold ours against: fetched by Maven, run as child processes.

Rule: Headworks never depends on them. A POM beside this module pins their version, `fetch` copies
them and what they need into a cache folder, and nothing else of the project knows of that folder.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

from headworks.errors import UnreachableError, UsageError


def fetch(pom: Path, name: str, label: str, kind: str = "jar") -> list[Path]:
    """The files of a kind that a POM names and needs; fetched once, then from the cache.

    The cache is a folder of `$XDG_CACHE_HOME/headworks` (`~/.cache/headworks` by default), another
    for every content of the POM. Raises UsageError without `mvn`, UnreachableError if Maven
    cannot fetch.
    """
    folder = _cache_folder(pom, name)
    folder.parent.mkdir(parents=True, exist_ok=True)
    with (folder.parent / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not folder.is_dir():
            _download(folder, pom, label)
    return sorted(folder.glob(f"*.{kind}"))


def postgresql_driver() -> list[Path]:
    """PostgreSQL's driver for Java."""
    pom = Path(__file__).with_name("postgresql.xml")
    return fetch(pom, "postgresql-jdbc", "PostgreSQL's JDBC driver")


def bound() -> list[str]:
    """What to run a command with so that the kernel ends it with its parent (Linux)."""
    setpriv = shutil.which("setpriv")
    return [setpriv, "--pdeathsig", "KILL"] if setpriv else []


def _cache_folder(pom: Path, name: str) -> Path:
    home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    content = hashlib.sha256(pom.read_bytes()).hexdigest()[:8]
    return Path(home) / "headworks" / f"{name}-{content}"


def _download(folder: Path, pom: Path, label: str) -> None:
    """Have Maven put all jars into `folder`, which appears only when it is complete."""
    if shutil.which("mvn") is None:
        raise UsageError(
            f"{label} is fetched by Maven, and there is no `mvn` on the path",
            fix="install Maven (Debian: apt-get install maven)",
        )
    with tempfile.TemporaryDirectory(prefix=f"{folder.name}-", dir=folder.parent) as temporary:
        jars = Path(temporary) / "jars"
        options = ["--batch-mode", "--quiet", "--strict-checksums", "--file", str(pom)]
        goal = ["dependency:copy-dependencies", "-DincludeScope=runtime"]
        done = subprocess.run(
            ["mvn", *options, *goal, f"-DoutputDirectory={jars}"],
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode != 0:
            raise UnreachableError(
                f"Maven could not fetch {label}:\n{done.stdout.strip()[-2000:]}",
                fix="check that Maven reaches its repository (~/.m2/settings.xml names mirrors)",
            )
        jars.rename(folder)
