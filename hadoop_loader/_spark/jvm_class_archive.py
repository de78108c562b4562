"""An archive of the classes that the JVM loads: with one, Spark starts in half the time.

Rules:

- Never a reason to fail: without an archive, or with one that the JVM does not take, a session
  starts as it always did. One with which no JVM comes up is thrown away.
- It is named by what it was made of (this Java, this Spark), lies in the user's cache, and goes
  when nobody has used it for a month.
- Making one costs half a minute of a core, so it is made in the background, by a process of its own
  with a metastore of its own, at the lowest priority, on a machine that has loaded before: a
  container that loads once and is thrown away would get nothing of it. One that cannot be made is
  not tried again.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

__all__ = ["QUIET", "ClassArchive"]

_SEEN_BEFORE_SECONDS = 3600.0
_UNUSED_SECONDS = 30 * 86_400.0
# What the JVM says of an archive that it does not take would come between the data on stdout.
QUIET = ("-Xlog:disable", "-Xlog:all=error:stderr")


class ClassArchive:
    """The archive in `folder`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._archive = self.folder / "classes.jsa"
        self._failed = self.folder / "failed"

    @classmethod
    def of(cls, java: str) -> ClassArchive:
        """The archive of this Spark and of the Java that says this of its version."""
        import pyspark

        home = os.environ.get("SPARK_HOME") or os.path.realpath(os.path.dirname(pyspark.__file__))
        what = "\n".join((java, os.environ.get("JAVA_HOME", ""), home, pyspark.__version__))
        base = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
        name = f"jvm-{hashlib.sha256(what.encode()).hexdigest()[:16]}"
        return cls(Path(base) / "headworks" / name)

    def options(self) -> tuple[str, ...]:
        """What a JVM is told so that it uses the archive, if there is one."""
        try:
            os.utime(self.folder)
            there = self._archive.exists()
        except OSError:
            return ()
        return (f"-XX:SharedArchiveFile={self._archive}", *QUIET) if there else ()

    def discard(self) -> None:
        """Throw the archive away, for good."""
        with suppress(OSError):
            self._failed.touch()
            self._archive.unlink()

    def build_if_useful(self, *, now: float | None = None) -> bool:
        """Make the archive in the background, if it is missing here and was missed before."""
        if self._archive.exists() or self._failed.exists():
            return False
        since = self.folder / "since"
        try:
            if not since.exists():
                self.folder.mkdir(parents=True, exist_ok=True)
                since.touch()
            if (time.time() if now is None else now) < since.stat().st_mtime + _SEEN_BEFORE_SECONDS:
                return False
        except OSError:
            return False
        subprocess.Popen(
            [
                sys.executable,
                "-P",
                "-m",
                "hadoop_loader._spark.class_archive_training",
                str(self.folder),
            ],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        return True

    def make(self, train: Callable[[Path, Path], None]) -> None:
        """Make the archive, unless another process is making it.

        `train(data_dir, archive)` runs a JVM that writes `archive` when it ends.
        """
        with (self.folder / "making").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if self._archive.exists():
                return
            self._failed.touch()  # it stays if this process dies
            with tempfile.TemporaryDirectory(prefix="headworks-") as data:
                made = self.folder / "making.jsa"
                made.unlink(missing_ok=True)
                train(Path(data), made)
            with made.open("rb") as file:
                os.fsync(file.fileno())
            made.rename(self._archive)
            self._failed.unlink()
        self._remove_unused()

    def _remove_unused(self) -> None:
        for folder in self.folder.parent.glob("jvm-*"):
            if folder.stat().st_mtime < time.time() - _UNUSED_SECONDS:
                shutil.rmtree(folder, ignore_errors=True)
