"""The Java programs beside this module, and Java's own client among them.

`JavaClient` puts that client behind the shape of the other four (`tests.broker.clients`).
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from base64 import b64decode, b64encode
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from headworks.errors import UsageError
from tests.broker.clients import Message
from tests.interop import apache_kafka

_SOURCES = sorted(Path(__file__).parent.glob("*.java"))
_DEADLINE = 120.0


@dataclass(frozen=True)
class JavaClient:
    """`JavaClient.java` and the other programs, compiled into `classes`."""

    classes: Path

    def run(self, address: str, *arguments: str, text: str = "") -> str:
        """Run it on the broker at `address`; what it printed, or AssertionError."""
        done = subprocess.run(
            apache_kafka.java("JavaClient", address, *arguments, classes=self.classes),
            input=text,
            capture_output=True,
            text=True,
            timeout=_DEADLINE,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    def send(self, address: str, topic: str, messages: Sequence[Message], codec: str) -> None:
        """Send messages to partition 0."""
        lines = [
            json.dumps(
                {
                    "timestamp": m.timestamp,
                    "key": _text(m.key),
                    "value": _text(m.value),
                    "headers": [[name, _text(value)] for name, value in m.headers],
                }
            )
            for m in messages
        ]
        self.run(address, "send", topic, codec, text="\n".join(lines))

    def read(self, address: str, topic: str, count: int) -> list[Message]:
        """Read the first messages of partition 0."""
        lines = self.run(address, "read", topic, str(count)).splitlines()
        return [_message(json.loads(line)) for line in lines]


def compile_client(folder: Path) -> JavaClient:
    """Compile all programs into `folder`; UsageError without a `javac`."""
    if shutil.which("javac") is None:
        raise UsageError("there is no `javac` on the path", fix="install a JDK, 17 or newer")
    classpath = os.pathsep.join(map(str, apache_kafka.fetch()))
    options = ["-Xlint:all", "-Werror", "-proc:none", "-cp", classpath, "-d", str(folder)]
    subprocess.run(["javac", *options, *map(str, _SOURCES)], check=True, timeout=_DEADLINE)
    return JavaClient(folder)


def _message(line: dict[str, Any]) -> Message:
    headers = tuple((name, _bytes(value) or b"") for name, value in line["headers"])
    return Message(_bytes(line["key"]), _bytes(line["value"]), headers, line["timestamp"])


def _text(data: bytes | None) -> str | None:
    return None if data is None else b64encode(data).decode()


def _bytes(text: str | None) -> bytes | None:
    return None if text is None else b64decode(text)
