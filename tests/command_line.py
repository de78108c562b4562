"""A command that ends by itself, run in this process as `headworks` would run it.

A process of its own costs a third of a second of a core before it does anything. It is for tests
about processes: servers, signals, kills, what an installation can import, and clients, which may
live on in this process. `run_process` has one forked where it can (tests/preloaded.py).
"""

from __future__ import annotations

import gc
import io
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from contextlib import chdir, redirect_stderr, redirect_stdout, suppress
from pathlib import Path
from unittest.mock import patch

from headworks._cli.main import run


def run_command(
    *arguments: str, cwd: Path | None = None, env: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Return how `headworks ARGUMENTS` ended, and what it wrote. `env` is added to ours."""
    out, errors = _stream(), _stream()
    thresholds = gc.get_threshold()
    try:
        with (
            patch.object(sys, "argv", ["headworks", *arguments]),
            patch.dict(os.environ, env or {}),
            chdir(cwd or Path.cwd()),
            redirect_stdout(out),
            redirect_stderr(errors),
        ):
            run()
        code = 0
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
    finally:
        gc.set_threshold(*thresholds)
    return subprocess.CompletedProcess(["headworks", *arguments], code, _text(out), _text(errors))


def run_process(
    *arguments: str, stdin: str = "", env: Mapping[str, str] | None = None, timeout: float = 120
) -> subprocess.CompletedProcess[str]:
    """As `run_command`, in a process of its own, which reads `stdin` to its end."""
    command = [sys.executable, "-P", "-m", "headworks._cli", *arguments]
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as errors:
        process = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=out,
            stderr=errors,
            text=True,
            env={**os.environ, **(env or {})},
        )
        try:
            assert process.stdin is not None
            with suppress(BrokenPipeError), process.stdin:
                process.stdin.write(stdin)
            code = process.wait(timeout)
        finally:
            process.kill()
            process.wait()
        for stream in (out, errors):
            stream.seek(0)
        return subprocess.CompletedProcess(command, code, out.read(), errors.read())


def _stream() -> io.TextIOWrapper:
    return io.TextIOWrapper(io.BytesIO(), encoding="utf-8", write_through=True)


def _text(stream: io.TextIOWrapper) -> str:
    stream.seek(0)
    return stream.read()
