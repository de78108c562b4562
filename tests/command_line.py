"""A command that ends by itself, run in this process as `headworks` would run it.

A process of its own costs a third of a second of a core before it does anything. It is for tests
about processes: servers, signals, kills, what an installation can import, and clients of a broker
that does not answer, which would live on in this process.
"""

from __future__ import annotations

import gc
import io
import os
import subprocess
import sys
from collections.abc import Mapping
from contextlib import chdir, redirect_stderr, redirect_stdout
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


def _stream() -> io.TextIOWrapper:
    return io.TextIOWrapper(io.BytesIO(), encoding="utf-8", write_through=True)


def _text(stream: io.TextIOWrapper) -> str:
    stream.seek(0)
    return stream.read()
