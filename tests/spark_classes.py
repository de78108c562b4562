"""Makes Spark's class archive while all tests run: later sessions start in half the time.

The product makes one for a machine that loads again (`hadoop_loader._spark.jvm_class_archive`). The
tests start Spark some twenty times, so a machine that runs them all gains more than the archive
costs. It stays in the user's cache, as the product's own does.

Rule: an archive is never a reason to fail. Without Java the tests that need it say so.

`python -m tests.spark_classes` makes it, unless there is one.
"""

from __future__ import annotations

import subprocess
import sys

import pytest


class SparkClasses:
    """Starts the process that makes the archive with the tests, and ends it with them."""

    def pytest_sessionstart(self, session: pytest.Session) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", __name__],
            cwd=session.config.rootpath,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )

    def pytest_unconfigure(self) -> None:
        self._process.kill()
        self._process.wait()


def is_whole_run(config: pytest.Config) -> bool:
    """Whether this process hands out all tests to workers."""
    names_no_tests = config.args_source is pytest.Config.ArgsSource.TESTPATHS
    selects = config.option.markexpr or config.option.keyword
    is_main = not hasattr(config, "workerinput") and bool(config.getoption("numprocesses", None))
    return is_main and names_no_tests and not selects


def _main() -> None:
    from hadoop_loader._spark.class_archive_training import train
    from hadoop_loader._spark.jvm_class_archive import ClassArchive
    from hadoop_loader._spark.session import check_java

    archive = ClassArchive.of(check_java())
    archive.folder.mkdir(parents=True, exist_ok=True)
    archive.make(train)


if __name__ == "__main__":
    _main()
