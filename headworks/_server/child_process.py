"""Headworks' servers as child processes: start one, wait until it serves, and stop it.

Rules:

- `start` returns when the server answers at the address that it printed. Otherwise it raises an
  error with the message of the server.
- A child never outlives its parent. It watches its standard input, a pipe that the kernel closes
  however the parent dies (SIGKILL included).
- The child is started as `python -P -m headworks._cli`, so that no module in the caller's folder
  shadows ours.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from headworks.errors import HeadworksError, UnreachableError, UsageError

_SUPERVISED = "HEADWORKS_SUPERVISED"


@dataclass(slots=True)
class Service:
    """A running server and its process."""

    name: str  # "registry", "broker", ...
    address: str  # HOST:PORT
    process: subprocess.Popen[str]
    log: IO[str]  # its stderr
    scheme: str = "http"  # or "https"

    @property
    def url(self) -> str:
        """The address as an URL."""
        return f"{self.scheme}://{self.address}"

    def words(self) -> str:
        """Return everything that it has written to stderr so far."""
        return _written(self.log, 0)

    def stop(self, timeout: float = 30.0) -> int:
        """Send SIGTERM, kill it after `timeout` seconds, and return its exit code."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(timeout)
            except subprocess.TimeoutExpired:
                self.process.kill()
        code = self.process.wait()
        _close(self.process, self.log)
        return code

    def kill(self) -> None:
        """Kill it at once (SIGKILL), as a crash would."""
        self.process.kill()
        self.process.wait()
        _close(self.process, self.log)

    def __enter__(self) -> Service:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()


def start(
    arguments: Sequence[str],
    *,
    timeout: float = 60.0,
    env: Mapping[str, str] | None = None,
    log_file: Path | None = None,
) -> Service:
    """Run `headworks ARGUMENTS --format json` as a child and wait until it serves.

    Its stderr is appended to `log_file`, or kept until it stops. If the child ends, raises
    UsageError (exit code 2) or UnreachableError (exit code 3) with its message. If it is silent for
    `timeout` seconds, raises UnreachableError.
    """
    log = _open_log(log_file)
    process = subprocess.Popen(
        [sys.executable, "-P", "-m", "headworks._cli", *arguments, "--format", "json"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=log,
        text=True,
        env={**os.environ, **(env or {}), _SUPERVISED: "1", "PYTHONUNBUFFERED": "1"},
        start_new_session=True,
    )
    try:
        ready = _ready_line(process, log, " ".join(arguments), timeout)
    except BaseException:
        process.kill()
        process.wait()
        _close(process, log)
        raise
    scheme = str(ready.get("scheme", "http"))
    return Service(str(ready["service"]), str(ready["listen"]), process, log, scheme)


def end_with_parent() -> None:
    """In a supervised child, end this process (by SIGTERM) when the parent has ended.

    Every server command calls it first. Without supervision it does nothing.
    """
    if os.environ.get(_SUPERVISED) != "1":
        return

    def watch() -> None:
        while os.read(sys.stdin.fileno(), 4096):
            pass
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=watch, name="parent-watch", daemon=True).start()


def _ready_line(
    process: subprocess.Popen[str], log: IO[str], what: str, timeout: float
) -> dict[str, object]:
    killer = threading.Timer(timeout, process.kill)
    killer.start()
    began = time.monotonic()
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
    finally:
        killer.cancel()
    if line:
        ready = json.loads(line)
        assert isinstance(ready, dict)
        return ready
    code = process.wait()
    if time.monotonic() - began >= timeout:
        raise UnreachableError(
            f"`headworks {what}` did not answer within {timeout:.0f} s:\n{_tail(log)}"
        )
    words = _tail(log).removeprefix("error: ")
    raise _error_for(code)(words or f"`headworks {what}` ended with exit code {code}")


def _error_for(code: int) -> type[HeadworksError]:
    return UnreachableError if code == UnreachableError.exit_code else UsageError


def _tail(log: IO[str], limit: int = 4000) -> str:
    """Return the end of the child's log."""
    return _written(log, max(0, os.fstat(log.fileno()).st_size - limit)).strip()


def _written(log: IO[str], start: int) -> str:
    """Return the child's log; uses pread, because the child shares the file's offset."""
    size = os.fstat(log.fileno()).st_size
    return os.pread(log.fileno(), max(0, size - start), start).decode(errors="replace")


def _open_log(path: Path | None) -> IO[str]:
    if path is None:
        return tempfile.TemporaryFile("w+", prefix="headworks-", suffix=".log")
    path.parent.mkdir(parents=True, exist_ok=True)
    return path.open("a+", encoding="utf-8")


def _close(process: subprocess.Popen[str], log: IO[str]) -> None:
    for stream in (process.stdin, process.stdout, log):
        if stream is not None and not stream.closed:
            stream.close()
