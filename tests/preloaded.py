"""Starts our servers and clients by forking a process that has imported them.

A server's imports cost a third of a second of a core, and a client's more. The tests start more
than a thousand servers, and a hundred clients. The process that `popen` returns has the same
arguments, environment, pipes, session, and working directory as one of `subprocess.Popen`, which
would be a new interpreter. It is a child of this process.

Rules:

- Nothing but the imports is shared. Each server is a process of its own, which ends by itself.
- A process whose environment changes the interpreter (PYTHONPATH, LD_PRELOAD, ...) gets a new one.
- Linux only: elsewhere, and for commands of no kind of `MODULES`, a new interpreter starts.

`python -P tests/preloaded.py FD KIND` is the process that imports and forks.
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
from dataclasses import dataclass
from typing import Any

# What each kind imports before it serves, also late: a command that serves, or any client.
_ALL = ("headworks._cli.main", "headworks._server.child_process", "typer._adapters")
MODULES = {
    "broker": ("headworks._broker.server.run", "headworks._broker.coordination.zookeeper"),
    "registry": (
        "headworks._registry.server",
        "headworks._registry.service.app",
        "sqlalchemy.dialects.sqlite",
        "uvloop",
    ),
    "console": ("headworks._console.app.server", "encodings.idna", "uvloop"),
    "audit": ("headworks._audit.reconciler",),
    "client": (
        "headworks._cli.consume",
        "headworks._cli.dead_letter",
        "headworks._cli.produce",
        "consumer_sdk._dead_letters.redrive",
        "consumer_sdk._jsonable",
        "consumer_sdk._untyped_events",
        "consumer_sdk._zookeeper_group",
        "producer_sdk._untyped",
    ),
}
_CLIENT_COMMANDS = ("consume", "dead-letter", "produce")
_CLIENT_PROGRAMS = (
    "tests.soak.fire_producer",
    "tests.soak.usage_client",
    "tests.soak.worker",
)
# The arguments before the command's. Each of these modules calls our imported command line.
_PROGRAMS = {"headworks._cli": 0, "cli": 0, "tests.soak.faults": 1}
_OPTIONS = {"stdin", "stdout", "stderr", "text", "env", "cwd", "start_new_session"}
_NUMBER_BYTES = 8
_SET_CHILD_SUBREAPER = 36  # linux/prctl.h
_INTERPRETERS = ("PYTHON", "LD_", "MALLOC_", "GLIBC_", "LANG", "LC_")
_MAX_READ_BYTES = 1 << 20


@dataclass(frozen=True)
class Program:
    """`python [-P] -m MODULE ARGUMENTS...`, of a kind of `MODULES`."""

    module: str
    arguments: list[str]
    safe_path: bool
    kind: str


class ForkedProcess(subprocess.Popen[Any]):
    """A process that was forked for us, and the ends of its pipes that are ours."""

    def __init__(self, pid: int, command: list[str], stdin: Any, stdout: Any) -> None:
        # All that `Popen.__init__` sets for what is called later. It would start a process.
        self.args = command
        self.pid = pid
        self.returncode: Any = None
        self.stdin, self.stdout, self.stderr = stdin, stdout, None
        vars(self).update(
            _waitpid_lock=threading.Lock(),
            _child_created=True,
            _sigint_wait_secs=0.25,
            _communication_started=False,
            _input=None,
            text_mode=isinstance(stdout, io.TextIOBase),
        )


class Preloaded:
    """The processes that imported a command's modules, each started when it is first wanted."""

    def __init__(self) -> None:
        self._links: dict[str, socket.socket] = {}
        self._processes: list[subprocess.Popen[bytes]] = []
        self._lock = threading.Lock()

    def popen(self, command: list[str], **options: Any) -> subprocess.Popen[Any]:
        """As `subprocess.Popen`, for what `MODULES` names and `_OPTIONS` allows."""
        found = _parsed(command)
        if found is None or not _are_known(options) or not _may_fork(options["env"]):
            return subprocess.Popen(command, **options)
        sys.audit("subprocess.Popen", command[0], command, None, options["env"])
        with self._lock:
            return self._fork(found, command, options)

    def close(self) -> None:
        """End the processes that import."""
        for link in self._links.values():
            link.close()
        for process in self._processes:
            process.kill()
            process.wait()

    def _fork(self, found: Program, command: list[str], options: dict[str, Any]) -> ForkedProcess:
        text = bool(options.get("text"))
        link = self._link(found.kind)
        stdin, stdin_ours = _input_of(options.get("stdin"), text)
        stdout, stdout_ours = _output_of(options["stdout"], text)
        folder = str(options.get("cwd") or os.getcwd())
        session = bool(options.get("start_new_session"))
        what = [found.module, found.arguments, found.safe_path, folder, session]
        request = json.dumps([*what, dict(options["env"])]).encode()
        _set_subreaper(True)  # so that the process, whose parent ends at once, becomes our child
        try:
            size = len(request).to_bytes(_NUMBER_BYTES, "big")
            socket.send_fds(link, [size], [stdin, stdout, options["stderr"].fileno()])
            link.sendall(request)
            pid = int.from_bytes(_received(link, _NUMBER_BYTES), "big")
        finally:
            _set_subreaper(False)
            os.close(stdin)
            os.close(stdout)
        return ForkedProcess(pid, command, stdin_ours, stdout_ours)

    def _link(self, kind: str) -> socket.socket:
        if kind not in self._links:
            ours, theirs = socket.socketpair()
            command = [sys.executable, "-P", __file__, str(theirs.fileno()), kind]
            with theirs:
                self._processes.append(
                    subprocess.Popen(
                        command,
                        pass_fds=[theirs.fileno()],
                        stdin=subprocess.DEVNULL,
                        start_new_session=True,
                    )
                )
            self._links[kind] = ours
        return self._links[kind]


def _parsed(command: list[str]) -> Program | None:
    safe_path = command[1] == "-P"
    option, module, *arguments = command[1 + safe_path :]
    if (command[0], option) != (sys.executable, "-m"):
        return None
    kind = _kind_of(module, arguments)
    return Program(module, arguments, safe_path, kind) if kind in MODULES else None


def _kind_of(module: str, arguments: list[str]) -> str | None:
    if module in _CLIENT_PROGRAMS:
        return "client"
    place = _PROGRAMS.get(module)
    if place is None:
        return None
    noun = arguments[place]
    return "client" if noun in _CLIENT_COMMANDS else noun


def _are_known(options: dict[str, Any]) -> bool:
    """Whether these options of `Popen` are ones that a fork can follow."""
    stdout, stderr = options.get("stdout"), options.get("stderr")
    return (
        _OPTIONS.issuperset(options)
        and "env" in options
        and options.get("stdin") in (None, subprocess.PIPE, subprocess.DEVNULL)
        and (stdout == subprocess.PIPE or hasattr(stdout, "fileno"))
        and hasattr(stderr, "fileno")
    )


def _input_of(wanted: int | None, text: bool) -> tuple[int, Any]:
    """Return the process's standard input, and our end of it if it is a pipe."""
    if wanted != subprocess.PIPE:
        return os.open(os.devnull, os.O_RDONLY), None
    theirs, ours = os.pipe()
    return theirs, os.fdopen(ours, "w", encoding="utf-8") if text else os.fdopen(ours, "wb")


def _output_of(wanted: Any, text: bool) -> tuple[int, Any]:
    """Return the process's standard output, and our end of it if it is a pipe."""
    if wanted != subprocess.PIPE:
        return os.dup(wanted.fileno()), None
    ours, theirs = os.pipe()
    return theirs, os.fdopen(ours, encoding="utf-8") if text else os.fdopen(ours, "rb")


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
        more = link.recv(min(size - len(found), _MAX_READ_BYTES))
        if not more:
            raise ConnectionError("the process that imports our modules ended")
        found += more
    return found


def _serve(link: socket.socket) -> str:
    """Fork for each request. In the new process, returns the module to run."""
    while True:
        head, descriptors, _, _ = socket.recv_fds(link, _NUMBER_BYTES, 3)
        if not head:
            os._exit(0)
        head += _received(link, _NUMBER_BYTES - len(head))
        request = _received(link, int.from_bytes(head, "big"))
        told, tell = os.pipe()
        between = os.fork()
        if between == 0:
            pid = os.fork()
            if pid:
                os.write(tell, pid.to_bytes(_NUMBER_BYTES, "big"))
                os._exit(0)
            for descriptor in (told, tell, link.detach()):
                os.close(descriptor)
            module, arguments, safe_path, folder, session, environment = json.loads(request)
            if session:
                os.setsid()
            _become(descriptors, environment, folder)
            sys.argv = [module, *arguments]
            if not safe_path:
                sys.path.insert(0, folder)
            return str(module)
        os.waitpid(between, 0)  # only now has the process its new parent
        link.sendall(os.read(told, _NUMBER_BYTES))
        for descriptor in (told, tell, *descriptors):
            os.close(descriptor)


def _become(descriptors: list[int], environment: dict[str, str], folder: str) -> None:
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
    kind = sys.argv[2]
    command = () if kind == "client" else (f"headworks._cli.{kind}",)
    for module in (*_ALL, *command, *MODULES[kind]):
        importlib.import_module(module)
    assert threading.active_count() == 1, "a module started a thread: its locks would be forked"
    gc.collect()
    gc.freeze()
    runpy.run_module(_serve(link), run_name="__main__")


if __name__ == "__main__":
    _main()
