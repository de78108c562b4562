"""Starts our servers by forking a process that has imported them, and not by a new interpreter.

A server's imports cost a third of a second of a core, and the tests start more than a thousand
servers. `child_process.start` works as ever: its child has the same arguments, environment, pipes,
session, and working directory, and is a child of this process.

Rules:

- Nothing but the imports is shared. Each server is a process of its own, which ends by itself.
- A server whose environment changes the interpreter (PYTHONPATH, LD_PRELOAD, ...) gets a new one.
- Linux only: elsewhere, and for commands that are not in `MODULES`, a new interpreter starts.

`python -P tests/preloaded.py FD NOUN` is the process that imports and forks.
"""

from __future__ import annotations

import gc
import importlib
import io
import json
import os
import runpy
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from typing import IO, Any

MODULES = {
    "broker": ("headworks._broker.server.run",),
    "registry": ("headworks._registry.server", "headworks._registry.service.app"),
    "console": ("headworks._console.app.server",),
}
_COMMAND = ["-P", "-m", "headworks._cli"]
_SET_CHILD_SUBREAPER = 36  # linux/prctl.h
_INTERPRETERS = ("PYTHON", "LD_", "MALLOC_", "GLIBC_", "LANG", "LC_")
_MAX_REQUEST = 1 << 20


class ForkedProcess(subprocess.Popen[str]):
    """A process that was forked for us. It has the pipes of a server: stdin and stdout."""

    def __init__(self, pid: int, arguments: list[str], stdin: int, stdout: int) -> None:
        # All that `Popen.__init__` sets for what is called later. It would start a process.
        self.args = arguments
        self.pid = pid
        self.returncode: Any = None
        self.stdin = os.fdopen(stdin, "w", encoding="utf-8")
        self.stdout = os.fdopen(stdout, encoding="utf-8")
        self.stderr = None
        vars(self).update(
            _waitpid_lock=threading.Lock(),
            _child_created=True,
            _sigint_wait_secs=0.25,
            _communication_started=False,
            _input=None,
            text_mode=True,
        )


class Preloaded:
    """The processes that imported a command's modules, each started when it is first wanted."""

    def __init__(self) -> None:
        self._links: dict[str, socket.socket] = {}
        self._processes: list[subprocess.Popen[bytes]] = []
        self._lock = threading.Lock()

    def popen(self, command: list[str], **options: Any) -> subprocess.Popen[Any]:
        """As `subprocess.Popen` for the calls of `child_process`."""
        environment: Mapping[str, str] = options["env"]
        if command[1:4] != _COMMAND or command[4] not in MODULES or not _may_fork(environment):
            return subprocess.Popen(command, **options)
        sys.audit("subprocess.Popen", command[0], command, None, environment)
        with self._lock:
            return self._fork(command[4:], environment, options["stderr"])

    def close(self) -> None:
        """End the processes that import."""
        for link in self._links.values():
            link.close()
        for process in self._processes:
            process.wait()

    def _fork(
        self, arguments: list[str], environment: Mapping[str, str], log: IO[str]
    ) -> ForkedProcess:
        link = self._link(arguments[0])
        stdin_read, stdin = os.pipe()
        stdout, stdout_write = os.pipe()
        request = json.dumps([arguments, dict(environment), os.getcwd()]).encode()
        _set_subreaper(True)  # so that the process, whose parent ends at once, becomes our child
        try:
            socket.send_fds(
                link,
                [len(request).to_bytes(8, "big")],
                [stdin_read, stdout_write, log.fileno()],
            )
            link.sendall(request)
            pid = int.from_bytes(_received(link, 8), "big")
        finally:
            _set_subreaper(False)
            os.close(stdin_read)
            os.close(stdout_write)
        return ForkedProcess(pid, arguments, stdin, stdout)

    def _link(self, noun: str) -> socket.socket:
        if noun not in self._links:
            ours, theirs = socket.socketpair()
            command = [sys.executable, "-P", __file__, str(theirs.fileno()), noun]
            with theirs:
                self._processes.append(
                    subprocess.Popen(
                        command,
                        pass_fds=[theirs.fileno()],
                        stdin=subprocess.DEVNULL,
                        start_new_session=True,
                    )
                )
            self._links[noun] = ours
        return self._links[noun]


def _may_fork(environment: Mapping[str, str]) -> bool:
    """Whether the interpreter of the command would start as this one did."""
    if not sys.platform.startswith("linux"):
        return False

    def of_interpreter(variables: Mapping[str, str]) -> dict[str, str]:
        found = {k: v for k, v in variables.items() if k.startswith(_INTERPRETERS)}
        return {k: v for k, v in found.items() if k != "PYTHONUNBUFFERED"}

    wanted = of_interpreter(environment)
    return wanted == of_interpreter(os.environ) and "PYTHONPATH" not in wanted


def _set_subreaper(wanted: bool) -> None:
    import ctypes

    ctypes.CDLL(None, use_errno=True).prctl(_SET_CHILD_SUBREAPER, int(wanted), 0, 0, 0)


def _received(link: socket.socket, size: int) -> bytes:
    found = b""
    while len(found) < size:
        more = link.recv(min(size - len(found), _MAX_REQUEST))
        if not more:
            raise ConnectionError("the process that imports our modules ended")
        found += more
    return found


def _serve(link: socket.socket) -> list[str]:
    """Fork for each request. Returns the arguments of the command, in its process."""
    while True:
        head, descriptors, _, _ = socket.recv_fds(link, 8, 3)
        if not head:
            os._exit(0)
        request = _received(link, int.from_bytes(head + _received(link, 8 - len(head)), "big"))
        told, tell = os.pipe()
        between = os.fork()
        if between == 0:
            pid = os.fork()
            if pid:
                os.write(tell, pid.to_bytes(8, "big"))
                os._exit(0)
            for descriptor in (told, tell, link.detach()):
                os.close(descriptor)
            arguments, environment, folder = json.loads(request)
            _become(descriptors, environment, folder)
            return ["headworks", *arguments]
        os.waitpid(between, 0)  # only now has the process its new parent
        link.sendall(os.read(told, 8))
        for descriptor in (told, tell, *descriptors):
            os.close(descriptor)


def _become(descriptors: list[int], environment: dict[str, str], folder: str) -> None:
    os.setsid()
    for target, descriptor in enumerate(descriptors):
        os.dup2(descriptor, target)
        os.close(descriptor)
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(environment)
    time.tzset()
    streams = {
        "stdin": os.fdopen(0, closefd=False),
        "stdout": _unbuffered(1),
        "stderr": _unbuffered(2),
    }
    vars(sys).update(streams, **{f"__{name}__": stream for name, stream in streams.items()})


def _unbuffered(descriptor: int) -> io.TextIOWrapper:
    raw = io.FileIO(descriptor, "wb", closefd=False)
    return io.TextIOWrapper(raw, encoding="utf-8", errors="backslashreplace", write_through=True)


def _main() -> None:
    signal.signal(signal.SIGINT, signal.default_int_handler)
    link = socket.socket(fileno=int(sys.argv[1]))
    for module in ("headworks._cli.main", f"headworks._cli.{sys.argv[2]}", *MODULES[sys.argv[2]]):
        importlib.import_module(module)
    assert threading.active_count() == 1, "a module started a thread: its locks would be forked"
    gc.collect()
    gc.freeze()
    sys.argv = _serve(link)
    runpy.run_module("headworks._cli", run_name="__main__", alter_sys=False)


if __name__ == "__main__":
    _main()
