"""An archive of the JVM's classes (class data sharing): Spark starts in half the time.

Rules:

- It is never a reason to fail. Without an archive, or with one that the JVM rejects, a session
  starts as usual. An archive with which no JVM starts is deleted.
- Its name depends on what it was built from (this Java, this Spark). It is in the user's cache, and
  is removed after a month without use.
- Java 17, Java 18, and the packaged Java get one. Spark's class path names slf4j-api twice. Other
  newer Javas list it once in the archive, and then reject the archive at each start. The script
  that starts the packaged Java names it once (headworks/_server/java.py).
- The archive lies on one of the JVM's own classes, which the packaged Java comes without. The JVM
  finds the second by the path in the first.
- Building one costs half a minute of a core. A background process does it, at the lowest priority
  and with a metastore of its own, and only on a machine that has loaded before. A container that
  loads once would gain nothing. A build that failed is not repeated.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from headworks import _system_calls
from headworks._server.java import Java

_SEEN_BEFORE_SECONDS = 3600.0
_UNUSED_SECONDS = 30 * 86_400.0
_NEWEST_JAVA = 18
# The JVM would print its complaints about an archive to stdout, between the data.
QUIET = ("-Xlog:disable", "-Xlog:all=error:stderr")


class ClassArchive:
    """The archive in `folder`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._archive = self.folder / "classes.jsa"
        self._failed = self.folder / "failed"  # exists if a build failed, or is under way

    @classmethod
    def of(cls, java: Java) -> ClassArchive:
        """Return the archive for this Spark and this Java."""
        import pyspark

        home = os.environ.get("SPARK_HOME") or os.path.realpath(os.path.dirname(pyspark.__file__))
        java_home = os.environ.get("JAVA_HOME", "")
        what = "\n".join((java.version_text, java_home, home, pyspark.__version__))
        base = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
        name = f"jvm-{hashlib.sha256(what.encode()).hexdigest()[:16]}"
        return cls(Path(base) / "headworks" / name)

    @staticmethod
    def suits(java: Java) -> bool:
        """Return whether this Java uses an archive of Spark's classes."""
        found = re.search(r'version "(\d+)', java.version_text)
        return java.is_packaged or (found is not None and int(found[1]) <= _NEWEST_JAVA)

    def options(self) -> tuple[str, ...]:
        """Return the JVM options that use the archive, if it exists."""
        try:
            os.utime(self.folder)
            exists = self._archive.exists()
        except OSError:
            return ()
        return (f"-XX:SharedArchiveFile={self._archive}", *QUIET) if exists else ()

    def discard(self) -> None:
        """Delete the archive for good."""
        with suppress(OSError):
            self._failed.touch()
            self._archive.unlink()

    def build_if_useful(self, *, now: float | None = None) -> bool:
        """Start a build in the background, if an earlier start missed the archive too."""
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
        """Build the archive, unless another process is building it.

        `train(data_dir, archive)` runs a JVM that writes `archive` when it ends.
        """
        with (self.folder / "making").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if self._archive.exists():
                return
            self._failed.touch()  # removed on success; stays if this process dies
            with tempfile.TemporaryDirectory(prefix="headworks-") as data:
                made = self.folder / "making.jsa"
                made.unlink(missing_ok=True)
                train(Path(data), made)
            with made.open("rb") as file:
                _system_calls.sync(file.fileno())
            made.rename(self._archive)
            self._failed.unlink()
        self._remove_unused()

    def _remove_unused(self) -> None:
        for folder in self.folder.parent.glob("jvm-*"):
            if folder.stat().st_mtime < time.time() - _UNUSED_SECONDS:
                shutil.rmtree(folder, ignore_errors=True)
