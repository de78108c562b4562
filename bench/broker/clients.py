"""The native clients: small programs in `clients/`, compiled for each run, one process a task.

Rules: a client that fails raises with its own words; its time never counts. Nothing but its JSON
answer is taken from it.
"""

from __future__ import annotations

import json
import os
import subprocess
from dataclasses import dataclass
from pathlib import Path

from headworks.errors import RefusedError

_SOURCES = Path(__file__).parent / "clients"
_JARS = Path("/usr/share/activemq/lib")
_MORE_JARS = ("/usr/share/java/hawtbuf.jar", "/usr/share/java/slf4j-nop.jar")
_TIMEOUT = 900.0


@dataclass(frozen=True, slots=True)
class Answer:
    """The measurement of a client: messages, seconds, and percentiles of requests in seconds."""

    count: int
    seconds: float
    p50: float = 0.0
    p99: float = 0.0
    p999: float = 0.0

    @property
    def rate(self) -> float:
        """How many a second."""
        return self.count / self.seconds


@dataclass(frozen=True, slots=True)
class Clients:
    """Where the compiled clients are."""

    folder: Path

    def kafka(self, *arguments: str) -> list[str]:
        """The command of the librdkafka client."""
        return [str(self.folder / "kafka"), *arguments]

    def many(self, *arguments: str) -> list[str]:
        """The command of the client with many connections."""
        return [str(self.folder / "many"), *arguments]

    def rabbitmq(self, *arguments: str) -> list[str]:
        """The command of the librabbitmq client."""
        return [str(self.folder / "rabbitmq"), *arguments]

    def nats(self, *arguments: str) -> list[str]:
        """The command of the libnats client."""
        return [str(self.folder / "nats"), *arguments]

    def activemq(self, *arguments: str) -> list[str]:
        """The command of the JMS client, and of the broker that it embeds."""
        classpath = os.pathsep.join([str(self.folder), *_activemq_jars()])
        return ["java", "-Xmx1g", "-cp", classpath, "ActiveMq", *arguments]


def compile_c(folder: Path, name: str, library: str = "") -> None:
    """Compile `clients/NAME.c` into `folder`."""
    link = [f"-l{library}"] if library else []
    source = str(_SOURCES / f"{name}.c")
    _compile(["gcc", "-O2", "-std=gnu11", "-o", str(folder / name), source, *link])


def compile_java(folder: Path) -> None:
    """Compile `clients/ActiveMq.java` into `folder`."""
    classpath = os.pathsep.join(_activemq_jars())
    _compile(["javac", "-cp", classpath, "-d", str(folder), str(_SOURCES / "ActiveMq.java")])


def spawn(command: list[str]) -> subprocess.Popen[str]:
    """Start a client; `collect` takes its answer."""
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def collect(client: subprocess.Popen[str]) -> Answer:
    """Wait for a client; RefusedError with its own words if it failed."""
    try:
        out, talk = client.communicate(timeout=_TIMEOUT)
    except BaseException:
        client.kill()
        client.wait()
        raise
    if client.returncode:
        assert isinstance(client.args, list)
        name = Path(str(client.args[0])).name
        raise RefusedError(f"the client {name} failed: {talk.strip()[-1000:]}")
    return Answer(**json.loads(out))


def _activemq_jars() -> list[str]:
    more = [jar for jar in _MORE_JARS if Path(jar).exists()]
    return [str(jar) for jar in sorted(_JARS.glob("*.jar"))] + more


def _compile(command: list[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RefusedError(f"`{' '.join(command)}` failed:\n{done.stderr.strip()[-2000:]}")
