"""Engines of others that read the warehouse's tables: Java programs on jars that Maven fetches."""

from __future__ import annotations

import json
import os
import re
import subprocess
import tempfile
from collections.abc import Callable, Sequence
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

from tests.interop import maven

_HERE = Path(__file__).parent
_DEADLINE = 500.0
Row = dict[str, str | None]
# What Spark's own launcher opens for it on Java 17.
_OPENED = (
    *("java.lang", "java.lang.invoke", "java.lang.reflect", "java.io", "java.net", "java.nio"),
    *("java.util", "java.util.concurrent", "java.util.concurrent.atomic", "sun.nio.ch"),
    *("sun.nio.cs", "sun.security.action", "sun.util.calendar"),
)


def spark41_rows(catalog: str, namespace: str, tables: Sequence[str]) -> dict[str, list[Any]]:
    """The rows of Iceberg tables by offset, as Spark 4.1 reads them. `catalog`: a JDBC URL."""
    jars = maven.fetch(_HERE.parent / "spark41.xml", "spark41", "Spark 4.1 with Iceberg")
    return _rows_by_table(_printed("IcebergRows", jars, [catalog, namespace, *tables]))


def trino_rows(catalog: str, namespace: str, tables: Sequence[str]) -> dict[str, list[Any]]:
    """The rows of Iceberg tables by offset, as Trino reads them. `catalog`: a JDBC URL."""
    jars = maven.fetch(_HERE.parent / "trino.xml", "trino", "Trino")
    java = [str(java_since(25)), "--add-modules=jdk.incubator.vector"]
    printed = _printed("TrinoRows", jars, [catalog, namespace, *tables], java=java)
    return {
        table: [_from_trino(row) for row in rows] for table, rows in _rows_by_table(printed).items()
    }


def java_since(oldest: int) -> Path | None:
    """A Java of that version or newer."""
    homes = [Path(os.environ.get("JAVA_HOME", "/")), *sorted(Path("/usr/lib/jvm").glob("*"))]
    for release in (home / "release" for home in homes):
        text = release.read_text(encoding="utf-8") if release.is_file() else ""
        version = re.search(r'JAVA_VERSION="(\d+)', text)
        if version is not None and int(version[1]) >= oldest:
            return release.with_name("bin") / "java"
    return None


_SCALARS: dict[str, Callable[[str], Any]] = {
    **dict.fromkeys((":integer", ":bigint"), int),
    **dict.fromkeys((":real", ":double"), float),
    ":decimal": Decimal,
    ":varbinary": bytes.fromhex,
    ":date": date.fromisoformat,
    ":timestamp": datetime.fromisoformat,
    ":timestamp with time zone": lambda text: datetime.fromisoformat(text.replace(" UTC", "Z")),
}


def _from_trino(found: Any) -> Any:
    """Return a value of `TrinoRows`."""
    if isinstance(found, list):
        return [_from_trino(item) for item in found]
    if not isinstance(found, dict):
        return found
    for kind in _SCALARS.keys() & found.keys():
        return _SCALARS[kind](found[kind])
    return {name: _from_trino(value) for name, value in found.items()}


def _rows_by_table(printed: str) -> dict[str, list[Any]]:
    """Return the rows of lines "TABLE TAB JSON"."""
    found: dict[str, list[Any]] = {}
    for line in printed.splitlines():
        table, tab, row = line.partition("\t")
        if tab:
            found.setdefault(table, []).append(json.loads(row))
    return found


def hive_rows(
    folder: Path, statements: Sequence[tuple[str, str]], zone: str = "UTC"
) -> dict[str, list[Row]]:
    """Run named statements in a new session of Hive; return the rows of each that succeeded.

    A value is text: bytes as hexadecimal digits, and a nested value as Hive's JSON.
    """
    jars = maven.fetch(_HERE.parent / "hive.xml", "hive", "Hive")
    folder.mkdir()
    lines = [f"{name}\t{text}\n" for name, text in statements]
    assert not any("\n" in line[:-1] for line in lines)
    rows: dict[str, list[Row]] = {}
    columns: dict[str, list[str]] = {}
    for line in _printed("HiveRows", jars, [str(folder)], "".join(lines), zone=zone).splitlines():
        mark, _, rest = line.partition("\t")
        if mark != "HiveRows":
            continue
        name, kind, text = rest.split("\t")
        found = json.loads(text)
        if kind == "columns":
            columns[name], rows[name] = found, []
        elif kind == "row":
            rows[name].append(dict(zip(columns[name], found, strict=True)))
        else:
            rows.pop(name, None)
    return rows


def _printed(
    program: str,
    jars: Sequence[Path],
    arguments: Sequence[str],
    text: str = "",
    java: Sequence[str] = ("java",),
    zone: str = "UTC",
) -> str:
    """Return the output of a program of this folder; `zone`: its default time zone."""
    opened = [f"--add-opens=java.base/{package}=ALL-UNNAMED" for package in _OPENED]
    command = [*java, "-Xmx1g", f"-Duser.timezone={zone}", *opened, "-cp", f"{jars[0].parent}/*"]
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
