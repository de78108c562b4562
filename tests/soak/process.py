"""Processes that are killed and started again: a broker, on one port and one folder, and others.

Rule: what is started is ended by its `stop`, `end` or `kill`; its log is kept over all its lives.
"""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import IO

from headworks._cli.stack.ports import free_ports

LONGEST = 1800.0  # a first load of everything, on a machine that does more besides
PATIENCE = 600.0  # for anything else: no promise is about how fast a starved machine is
_ROOT = Path(__file__).parent.parent.parent


class Broker:
    """A broker with its lives.

    An `observed` one notes what it puts on disk (see `power`); a `faulty` one has a disk that fails
    on demand (see `faults`).
    """

    def __init__(
        self, folder: Path, *options: str, observed: bool = False, faulty: bool = False
    ) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self.journal = folder / "journal"
        self.log = folder / "broker.log"
        self.address = f"127.0.0.1:{free_ports(1)[0]}"
        module = ["cli"]
        if observed:
            module = ["tests.soak.power", str(self.journal)]
        elif faulty:
            module = ["tests.soak.faults", str(folder)]
        start = ["broker", "start", "--listen", self.address, "--data-dir", str(folder)]
        self._command = [sys.executable, "-m", *module, *start, *options]
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def logs(self) -> Path:
        """Where the partitions are."""
        return self.folder / "broker" / "logs"

    @property
    def pid(self) -> int:
        """The process of the present life."""
        assert self._process is not None
        return self._process.pid

    @property
    def alive(self) -> bool:
        """Whether it has not ended by itself."""
        return self._process is not None and self._process.poll() is None

    def start(self, timeout: float = PATIENCE) -> None:
        """Begin a life and wait until it serves."""
        self.launch()
        self.wait(timeout)

    def wait(self, timeout: float = PATIENCE) -> None:
        """Wait until it serves, after `launch`."""
        assert self._process is not None
        line = _line(self._process.stdout, timeout)
        if not line:
            self.kill()
            raise RuntimeError(f"the broker did not start:\n{self.words()[-4000:]}")

    def launch(self) -> None:
        """Begin a life without waiting."""
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                self._command, stdout=subprocess.PIPE, stderr=log, cwd=_ROOT, env=os.environ
            )

    def kill(self) -> None:
        """SIGKILL."""
        assert self._process is not None
        self._process.kill()
        self._end()

    def stop(self) -> int:
        """SIGTERM; the exit code."""
        assert self._process is not None
        self._process.send_signal(signal.SIGTERM)
        return self._end()

    def words(self) -> str:
        """Everything it has logged."""
        return self.log.read_text(encoding="utf-8", errors="replace")

    def _end(self) -> int:
        assert self._process is not None
        try:
            code = self._process.wait(60)
        except subprocess.TimeoutExpired:
            self._process.kill()
            code = self._process.wait()
        assert self._process.stdout is not None
        self._process.stdout.close()
        return code


class Child:
    """A process that is killed, paused and started again."""

    def __init__(
        self, command: list[str], log: Path, ready: Callable[[], bool] = lambda: True
    ) -> None:
        self.command = command
        self._ready = ready
        self.log = log
        self.process = self._start()

    def _start(self) -> subprocess.Popen[bytes]:
        with self.log.open("ab") as log:
            return subprocess.Popen(
                [sys.executable, "-m", *self.command],
                stderr=log,
                stdout=log,
                stdin=subprocess.DEVNULL,
                cwd=_ROOT,
                env={k: v for k, v in os.environ.items() if not k.startswith("HEADWORKS_")},
                start_new_session=True,
            )

    @property
    def is_ready(self) -> bool:
        """Whether it has begun its work."""
        return self._ready()

    def signal(self, number: int) -> None:
        """Signal it and all its children."""
        os.killpg(self.process.pid, number)

    def kill(self) -> None:
        self.signal(signal.SIGKILL)
        self.process.wait()

    def restart(self) -> None:
        self.process = self._start()

    def end(self, timeout: float = LONGEST) -> int:
        """End it by SIGTERM, when it has begun its work."""
        wait_until(lambda: self._ready() or self.process.poll() is not None)
        self.signal(signal.SIGTERM)
        return self.process.wait(timeout)


def wait_until(true: Callable[[], bool]) -> None:
    """Wait for a fact, for as long as there is patience."""
    deadline = time.monotonic() + PATIENCE
    while not true():
        assert time.monotonic() < deadline, "what was waited for has not come"
        time.sleep(0.002)


def soak(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run a proof in a process of its own, where clients may leave sockets and warnings behind."""
    return subprocess.run(
        [sys.executable, "-m", "tests.soak", *arguments],
        cwd=_ROOT,
        capture_output=True,
        text=True,
        check=False,
    )


def _line(stream: IO[bytes] | None, timeout: float) -> bytes:
    assert stream is not None
    end = time.monotonic() + timeout
    ready, _, _ = select.select([stream], [], [], max(0.0, end - time.monotonic()))
    return stream.readline() if ready else b""
