"""`python -m bench.instructions CHECKOUT`: the instructions of each path, there and here.

Rules: it needs valgrind, and a `.venv` in both checkouts. Exit 1 if a path of this checkout takes
more than `--at-most` times what it takes in the other. Progress goes to stderr.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from bench.instructions.broker_paths import CountedPath, broker_paths
from bench.instructions.callgrind import CountedProcess, under_callgrind
from headworks.errors import HeadworksError, UnreachableError, UsageError

_HERE = Path(__file__).resolve().parents[2]
_WORKER = Path(__file__).with_name("sdk_worker.py")
# No flush by time: how many there are for a request depends on the load of the machine
_NEVER_FLUSHES = ["--flush-ms", "3600000", "--flush-messages", "1000000000"]
_SDK_PATHS = (("encode", 1000, 4000), ("decode", 1000, 4000), ("send", 2000, 10_000))


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the table; return the exit code."""
    parser = argparse.ArgumentParser("python -m bench.instructions", description=__doc__)
    parser.add_argument("checkout", type=Path, help="the checkout to compare with")
    parser.add_argument("--only", default="", help="measure the paths with this text in their name")
    parser.add_argument(
        "--at-most", type=float, default=1.03, help="accepted ratio (default: 1.03)"
    )
    given = parser.parse_args(arguments)
    try:
        if shutil.which("callgrind_control") is None:
            raise UsageError(
                "valgrind is not installed", fix="install it with your package manager"
            )
        before = costs(given.checkout.resolve(), given.only)
        after = costs(_HERE, given.only)
    except HeadworksError as error:
        sys.stderr.write(f"error: {error}\n")
        return error.exit_code
    print("| path | there | here | ratio |\n|---|---:|---:|---:|")
    for name, cost in after.items():
        print(f"| {name} | {before[name]:,.0f} | {cost:,.0f} | {cost / before[name]:.3f} |")
    return int(any(cost > given.at_most * before[name] for name, cost in after.items()))


def costs(checkout: Path, only: str) -> dict[str, float]:
    """Return the instructions of each path in a checkout."""
    found = {}
    with tempfile.TemporaryDirectory(prefix="bench-instructions-") as name:
        folder = Path(name)
        processes = [(_broker, False)]
        if any(only in path for path, _, _ in _SDK_PATHS):
            processes.append((_sdk, True))
        for start, main_thread_only in processes:
            with start(checkout, folder) as (pid, paths):
                counted = CountedProcess(pid, folder, main_thread_only=main_thread_only)
                for path, call, few, many in paths:
                    if only in path:
                        found[path] = counted.cost(call, few, many)
                        sys.stderr.write(f"{checkout.name}: {path}: {found[path]:,.0f}\n")
                    else:
                        call(few)  # later paths read what it writes
    return found


Started = tuple[int, Iterator[CountedPath]]


@contextmanager
def _broker(checkout: Path, folder: Path) -> Iterator[Started]:
    with _server(checkout, folder, "broker", counted=True) as (pid, address):
        yield pid, broker_paths(address)


@contextmanager
def _sdk(checkout: Path, folder: Path) -> Iterator[Started]:
    with ExitStack() as servers:
        _, broker = servers.enter_context(_server(checkout, folder / "served", "broker"))
        _, registry = servers.enter_context(_server(checkout, folder / "served", "registry"))
        python = str(checkout / ".venv/bin/python")
        command = [python, str(_WORKER), str(folder), broker, f"http://{registry}"]
        worker = servers.enter_context(_started(under_callgrind(command, folder), checkout))

        def call(path: str) -> Callable[[int], None]:
            return lambda count: _ask(worker, f"{path} {count}\n")

        _ask(worker, "")
        yield worker.pid, ((path, call(path), few, many) for path, few, many in _SDK_PATHS)


def _ask(worker: subprocess.Popen[str], line: str) -> None:
    assert worker.stdin is not None
    assert worker.stdout is not None
    worker.stdin.write(line)
    worker.stdin.flush()
    if worker.stdout.readline() != "done\n":
        raise UnreachableError("the worker of the SDK paths has ended: see the lines above")


@contextmanager
def _server(
    checkout: Path, folder: Path, name: str, *, counted: bool = False
) -> Iterator[tuple[int, str]]:
    folder.mkdir(exist_ok=True)
    store = {
        "broker": ["--data-dir", str(folder / "data"), *_NEVER_FLUSHES],
        "registry": ["--store", f"sqlite:///{folder}/registry.db"],
    }[name]
    command = [str(checkout / ".venv/bin/python"), "-P", "-m", "headworks._cli", name, "start"]
    command += ["--listen", "127.0.0.1:0", "--format", "json", *store]
    with _started(under_callgrind(command, folder) if counted else command, folder) as process:
        assert process.stdout is not None
        line = process.stdout.readline()
        if not line:
            raise UnreachableError(f"the {name} of {checkout} does not start: see the lines above")
        yield process.pid, str(json.loads(line)["listen"])


@contextmanager
def _started(command: Sequence[str], folder: Path) -> Iterator[subprocess.Popen[str]]:
    """A process that ends with this block, or with this process."""
    pipe = subprocess.PIPE
    env = {**os.environ, "HEADWORKS_SUPERVISED": "1"}
    process = subprocess.Popen(command, cwd=folder, stdin=pipe, stdout=pipe, text=True, env=env)
    try:
        yield process
    finally:
        process.terminate()
        process.wait()


if __name__ == "__main__":
    sys.exit(main())
