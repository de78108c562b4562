"""Avro Java itself, as a long-lived process that answers one line with one line.

The class is compiled once per session from AvroOracle.java against the jars that come with
PySpark. Without a JDK, the tests that need it are skipped.
"""

from __future__ import annotations

import importlib.util
import json
import subprocess
import threading
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.tools import require

SOURCE = Path(__file__).with_name("AvroOracle.java")
JARS = ("avro-1.12", "jackson-core-2", "jackson-databind-2", "jackson-annotations-2", "slf4j-api")


class Oracle:
    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process

    def ask_all(self, questions: Iterable[tuple[str, ...]]) -> list[list[str]]:
        """The answers in the order of the questions, each split at its tabs."""
        lines = ["\t".join(question) + "\n" for question in questions]
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        stdin = self.process.stdin

        def feed() -> None:
            stdin.writelines(lines)
            stdin.flush()

        feeder = threading.Thread(target=feed)
        feeder.start()
        answers = [self.process.stdout.readline().rstrip("\n").split("\t") for _ in lines]
        feeder.join()
        return answers

    def ask(self, *question: str) -> list[str]:
        return self.ask_all([question])[0]


def compact(schema: Any) -> str:
    """JSON on one line without tabs, as a question needs it."""
    return json.dumps(schema, ensure_ascii=False)


def _class_path() -> list[Path]:
    spec = importlib.util.find_spec("pyspark")
    if spec is None or spec.origin is None:
        pytest.skip("PySpark, whose jars hold Avro Java, is not installed")
    jars = Path(spec.origin).parent / "jars"
    found = [jar for jar in sorted(jars.glob("*.jar")) if jar.name.startswith(JARS)]
    if len(found) != len(JARS):
        pytest.skip(f"the jars of Avro Java 1.12 are not in {jars}")
    return found


def start(folder: Path) -> Iterator[Oracle]:
    """Compile and run the oracle in `folder`; the process ends with the generator."""
    require("javac")
    jars = ":".join(map(str, _class_path()))
    subprocess.run(["javac", "-cp", jars, "-d", str(folder), str(SOURCE)], check=True)
    command = ["java", "-Xmx256m", "-XX:+UseSerialGC", "-cp", f"{jars}:{folder}", "AvroOracle"]
    with subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        encoding="utf-8",
    ) as process:
        assert process.stdin is not None
        try:
            yield Oracle(process)
        finally:
            process.stdin.close()
            process.wait(timeout=120)
