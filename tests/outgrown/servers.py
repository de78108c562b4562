"""A server that a test kills, pauses, and starts again: one process, one log, one port to wait for.

Rules: a server ends with the process that started it. It keeps its ports and its folder, so it
comes back as itself.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from headworks.errors import RefusedError, UnreachableError
from tests.interop import maven

_PATIENCE_SECONDS = 180.0


@dataclass(slots=True)
class Server:
    """A server of one command."""

    name: str
    command: Sequence[str]
    log: Path
    answers: Callable[[], bool]  # whether it serves
    env: Mapping[str, str] = field(default_factory=dict)
    process: subprocess.Popen[bytes] | None = None

    def launch(self) -> None:
        """Start the process, and return at once."""
        with self.log.open("ab") as output:
            self.process = subprocess.Popen(
                [*maven.bound(), *self.command],
                env={**os.environ, **self.env},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                start_new_session=True,
            )

    def wait(self, timeout: float = _PATIENCE_SECONDS) -> None:
        """Return when it serves.

        Raises RefusedError with its last words if it ends, and UnreachableError after `timeout`
        seconds.
        """
        end = time.monotonic() + timeout
        while not self.answers():
            if not self.alive:
                raise RefusedError(f"{self.name} ended:\n{self.last_words()}")
            if time.monotonic() > end:
                raise UnreachableError(f"{self.name} does not answer:\n{self.last_words()}")
            time.sleep(0.1)

    @property
    def alive(self) -> bool:
        """Return whether the process runs."""
        return self.process is not None and self.process.poll() is None

    def kill(self) -> None:
        """End it with SIGKILL."""
        if self.process is not None:
            if self.alive:
                os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()

    def pause(self) -> None:
        """Suspend it."""
        assert self.process is not None
        os.killpg(self.process.pid, signal.SIGSTOP)

    def resume(self) -> None:
        """Continue it after `pause`."""
        assert self.process is not None
        os.killpg(self.process.pid, signal.SIGCONT)

    def last_words(self) -> str:
        """Return the end of its log."""
        return self.log.read_text(encoding="utf-8", errors="replace")[-4000:]


def listens(port: int) -> bool:
    """Return whether something listens on this port of loopback."""
    try:
        socket.create_connection(("127.0.0.1", port), 1).close()
    except OSError:
        return False
    return True
