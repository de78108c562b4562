"""`python -m bench NAME [--quick] [--format text|json]` and `python -m bench report RESULT.json`.

Rules: the result on stdout, progress on stderr. Exit 0 when every bar is met, 1 when one is not.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import json
import os
import signal
import sys
import tempfile
from pathlib import Path
from types import FrameType
from typing import NoReturn

from bench.frame import Bench
from bench.machine import describe
from bench.report import markdown, replace_section
from headworks.errors import FindingsError, HeadworksError, UsageError

NAMES = (
    "broker",
    "coordination",
    "registry",
    "sdk",
    "loader",
    "tables",
    "audit",
    "console",
    "gate",
    "scale",
)


def main(arguments: list[str] | None = None) -> int:
    """Run one benchmark, or write a report; returns the exit code."""
    given = _parser().parse_args(arguments)
    signal.signal(signal.SIGTERM, _interrupt)  # so that servers of peers are ended too
    try:
        if given.name == "report":
            _report(given.result, given.into)
            return 0
        return _run(given.name, quick=given.quick, format_=given.format, scratch=given.scratch)
    except HeadworksError as error:
        sys.stderr.write(f"error: {error}\n")
        return error.exit_code
    except KeyboardInterrupt:
        return 130


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser("python -m bench", description="Headworks and its peers.")
    commands = parser.add_subparsers(dest="name", required=True, metavar="NAME")
    for name in NAMES:
        if importlib.util.find_spec(f"bench.{name}") is None:
            continue
        one = commands.add_parser(name, help=f"measure {name}")
        one.add_argument("--quick", action="store_true", help="the same, smaller: below 60 s")
        one.add_argument("--format", choices=("text", "json"), default="text")
        one.add_argument(
            "--scratch", type=Path, default=None, help="folder for data; default: a temporary one"
        )
    report = commands.add_parser("report", help="write a result as Markdown")
    report.add_argument("result", type=Path, help="the output of `--format json`")
    report.add_argument("--into", type=Path, help="the document whose tables to replace")
    return parser


def _run(name: str, *, quick: bool, format_: str, scratch: Path | None) -> int:
    module = importlib.import_module(f"bench.{name}")
    with tempfile.TemporaryDirectory(prefix=f"bench-{name}-", dir=scratch) as folder:
        bench = Bench(name, Path(folder), quick=quick, talk=_talk)
        machine = describe(Path(folder))
        module.run(bench)
        result = bench.as_json(title=module.TITLE, machine=machine)
    sys.stdout.write(json.dumps(result, indent=1) + "\n" if format_ == "json" else markdown(result))
    return 0 if bench.kept else FindingsError.exit_code


def _report(source: Path, into: Path | None) -> None:
    try:
        result = json.loads(source.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise UsageError(f"{source}: not a result of `python -m bench`: {error}") from None
    if into is None:
        sys.stdout.write(markdown(result))
        return
    changed = replace_section(into.read_text(encoding="utf-8"), result)
    temporary = into.with_name(into.name + "-new")
    temporary.write_text(changed, encoding="utf-8")
    os.replace(temporary, into)


def _talk(text: str) -> None:
    sys.stderr.write(text + "\n")
    sys.stderr.flush()


def _interrupt(_number: int, _frame: FrameType | None) -> NoReturn:
    raise KeyboardInterrupt


if __name__ == "__main__":
    sys.exit(main())
