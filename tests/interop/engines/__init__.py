"""Engines of others that read the warehouse's tables: Java programs on jars that Maven fetches."""

from __future__ import annotations

import json
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.interop import maven

_HERE = Path(__file__).parent
_DEADLINE = 500.0
# What Spark's own launcher opens for it on Java 17.
_OPENED = (
    *("java.lang", "java.lang.invoke", "java.lang.reflect", "java.io", "java.net", "java.nio"),
    *("java.util", "java.util.concurrent", "java.util.concurrent.atomic", "sun.nio.ch"),
    *("sun.nio.cs", "sun.security.action", "sun.util.calendar"),
)


def spark41_rows(catalog: str, namespace: str, tables: Sequence[str]) -> dict[str, list[Any]]:
    """The rows of Iceberg tables by offset, as Spark 4.1 reads them. `catalog`: a JDBC URL."""
    jars = maven.fetch(_HERE.parent / "spark41.xml", "spark41", "Spark 4.1 with Iceberg")
    found: dict[str, list[Any]] = {}
    for line in _printed("IcebergRows", jars, [catalog, namespace, *tables]).splitlines():
        table, tab, row = line.partition("\t")
        if tab:
            found.setdefault(table, []).append(json.loads(row))
    return found


def _printed(program: str, jars: Sequence[Path], arguments: Sequence[str], text: str = "") -> str:
    """What a program of this folder prints."""
    opened = [f"--add-opens=java.base/{package}=ALL-UNNAMED" for package in _OPENED]
    command = ["java", "-Xmx1g", "-Duser.timezone=UTC", *opened, "-cp", f"{jars[0].parent}/*"]
    with tempfile.TemporaryDirectory() as folder:  # Derby writes a log beside itself
        done = subprocess.run(
            [*maven.bound(), *command, str(_HERE / f"{program}.java"), *arguments],
            input=text,
            cwd=folder,
            capture_output=True,
            text=True,
            timeout=_DEADLINE,
            check=False,
        )
    assert done.returncode == 0, done.stderr[-5000:]
    return done.stdout
