"""The commands of the documentation, run as an operator would: in order, in a shell."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

_DOCS = Path(__file__).parent.parent / "docs"
_HEADING = re.compile(r"^##+ (.*)$", re.MULTILINE)
_BLOCK = re.compile(r"^```sh\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def commands_of(heading: str, page: str = "backup.md") -> list[str]:
    """The blocks of commands between a heading and the next one, whatever its level."""
    text = (_DOCS / page).read_text(encoding="utf-8")
    places = [(found.group(1), found.end()) for found in _HEADING.finditer(text)]
    ((start, end),) = [
        (place, following)
        for (name, place), (_, following) in zip(
            places, [*places[1:], ("", len(text))], strict=True
        )
        if name == heading
    ]
    return _BLOCK.findall(text[start:end])


def run(command: str, **variables: Path | str) -> None:
    """Run a block of commands with these variables; AssertionError if it fails."""
    ran = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", command],
        env={
            **os.environ,
            "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
            **{name: str(value) for name, value in variables.items()},
        },
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
    assert ran.returncode == 0, f"{command}\n{ran.stderr}"
