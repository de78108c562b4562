"""An archive of the JVM's classes: with one, Spark is up in half the time.

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
from contextlib import suppress
from pathlib import Path

from hadoop_loader.config import WarehouseConfig

__all__ = ["Classes"]

_BEFORE = 3600.0
_UNUSED = 30 * 86_400.0
_LONGEST = 900.0
# What the JVM says of an archive that it does not take would come between the data on stdout.
_QUIET = ("-Xlog:disable", "-Xlog:all=error:stderr")


class Classes:
    """The archive in `folder`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._archive = self.folder / "classes.jsa"
        self._failed = self.folder / "failed"

    @classmethod
    def of(cls, java: str) -> Classes:
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
        return (f"-XX:SharedArchiveFile={self._archive}", *_QUIET) if there else ()

    def discard(self) -> None:
        """Throw the archive away, for good."""
        with suppress(OSError):
            self._failed.touch()
            self._archive.unlink()

    def make_if_worth_it(self, *, now: float | None = None) -> bool:
        """Make the archive in the background, if it is missing here and was missed before."""
        if self._archive.exists() or self._failed.exists():
            return False
        since = self.folder / "since"
        try:
            if not since.exists():
                self.folder.mkdir(parents=True, exist_ok=True)
                since.touch()
            if (time.time() if now is None else now) < since.stat().st_mtime + _BEFORE:
                return False
        except OSError:
            return False
        subprocess.Popen(
            [sys.executable, "-P", "-m", "hadoop_loader.classes", str(self.folder)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        return True

    def make(self) -> None:
        """Make the archive, if no other process does."""
        with (self.folder / "making").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if self._archive.exists():
                return
            self._failed.touch()  # it stays if this process dies
            with tempfile.TemporaryDirectory(prefix="headworks-") as data:
                made = self.folder / "making.jsa"
                made.unlink(missing_ok=True)
                _live(Path(data), made)
            with made.open("rb") as file:
                os.fsync(file.fileno())
            made.rename(self._archive)
            self._failed.unlink()
        self._forget_others()

    def _forget_others(self) -> None:
        for folder in self.folder.parent.glob("jvm-*"):
            if folder.stat().st_mtime < time.time() - _UNUSED:
                shutil.rmtree(folder, ignore_errors=True)


def _live(data: Path, archive: Path) -> None:
    """The life of a JVM that loads and answers, and puts its classes into `archive` as it ends."""
    from hadoop_loader.catalog import HiveCatalog
    from hadoop_loader.columns import METADATA, Scalar, StructField
    from hadoop_loader.serve import serve
    from hadoop_loader.session import start_session, stop_session
    from hadoop_loader.sql import query

    os.environ.pop("SPARK_CONF_DIR", None)
    config = WarehouseConfig(data_dir=data, bootstrap="", registry="")
    spark = start_session(config, extra=(f"-XX:ArchiveClassesAtExit={archive}", *_QUIET))
    try:
        catalog = HiveCatalog(spark, config.files_database, config.database)
        catalog.prepare(config.metastore)
        columns = (StructField("n", Scalar("int")), *METADATA)
        catalog.put_table("t", columns, data / "t", "A table.", {"a": "b"})
        view = f"SELECT CASE WHEN _load < 2 THEN 1 ELSE n END AS n FROM {catalog.source_of('t')}"
        catalog.put_view("t", columns[:1], view, "A view.", {"a": "b"})
        catalog.add_days("t", ["2013-01-31"])
        catalog.relocate("t", {"2013-01-31": data / "u"})
        rows = spark.sparkContext.parallelize([(0,), (1,)], 2).flatMap(tuple).collect()
        spark.createDataFrame([rows], "n int, m int").write.parquet(f"file://{data}/u/x")
        spark.read.parquet(f"file://{data}/u/x").selectExpr("count(DISTINCT n, m)").collect()
        host, port = serve(spark, "127.0.0.1", 0)
        query(f"{host}:{port}", "SELECT n, count(*) FROM t GROUP BY n ORDER BY n")
    finally:
        stop_session(spark, wait=_LONGEST)


if __name__ == "__main__":
    os.nice(19)
    Classes(Path(sys.argv[1])).make()
