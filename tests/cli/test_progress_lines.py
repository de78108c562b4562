"""Progress without a terminal: long work prints lines, short work none."""

from __future__ import annotations

import os
import re
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from unittest.mock import Mock

import pytest

from headworks._cli import up
from headworks._cli.demo.progress import DemoProgress
from headworks._cli.output import Format
from headworks._cli.progress_lines import ProgressLines
from headworks._cli.warehouse_options import phases
from tests.waiting import until

pytestmark = pytest.mark.unit


def test_long_work_prints_what_is_going_on(capfd: pytest.CaptureFixture[str]) -> None:
    printed = ""
    with ProgressLines("starting", every=0.02) as lines:
        while "  starting ... " not in printed:
            printed += capfd.readouterr().err
            time.sleep(0.01)
        lines.show("reading, 40% done")
        while not printed.endswith(" s\n") or "  reading, 40% done ... " not in printed:
            printed += capfd.readouterr().err
            time.sleep(0.01)
    assert re.fullmatch(r"(  (starting|reading, 40% done) \.\.\. \d+ s\n)+", printed)


def test_short_work_prints_nothing(capfd: pytest.CaptureFixture[str]) -> None:
    with ProgressLines("starting"):
        pass
    with phases() as show:
        show("read", 0.5)
    assert capfd.readouterr().err == ""


@contextmanager
def stderr_turned_away() -> Iterator[None]:
    """As Spark's session does while its JVM starts."""
    before = os.dup(2)
    try:
        with open(os.devnull, "wb") as nothing:
            os.dup2(nothing.fileno(), 2)
        yield
    finally:
        os.dup2(before, 2)
        os.close(before)


def test_lines_arrive_while_stderr_is_turned_away(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stderr", os.fdopen(2, "w", closefd=False))  # as outside of a test
    lines = ProgressLines("starting", every=0.01)
    with stderr_turned_away(), lines:
        until(lambda: "starting" in capfd.readouterr().err)


def test_a_step_that_begins_while_stderr_is_turned_away_prints_lines(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stderr", os.fdopen(2, "w", closefd=False))
    lines = partial(ProgressLines, every=0.01)
    monkeypatch.setattr("headworks._cli.demo.progress.ProgressLines", lines)
    progress = DemoProgress()
    with stderr_turned_away(), progress.step("produce"):
        until(lambda: re.search(r"produce \.\.\. \d+ s\n", capfd.readouterr().err))


def test_a_step_of_the_demo_is_one_line_in_a_log(capfd: pytest.CaptureFixture[str]) -> None:
    progress = DemoProgress()
    with progress.step("produce"), progress.bar("flights", 2000) as advance:
        for _ in range(2000):
            advance()
    assert re.fullmatch(r"  produce: \d+\.\d s\n", capfd.readouterr().err)


def test_up_says_what_it_starts_and_that_it_stops(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    printed = ""

    @contextmanager
    def slow(before: str, after: str) -> Iterator[Mock]:
        """A server that starts, and stops, as late as the lines of these texts."""
        wait_for(before)
        server = Mock(url="http://x", address="x", data_dir=Path("x"), zookeeper=None)
        server.broker, server.registry = server, server
        yield server
        wait_for(after)

    def wait_for(text: str) -> None:
        nonlocal printed
        while not re.search(rf"^  {text} \.\.\. \d+ s$", printed, re.MULTILINE):
            printed += capfd.readouterr().err
            time.sleep(0.01)

    both, rest = "starting the broker and the registry", "starting the console and the audit"
    stack = "headworks._cli.stack.stack"
    monkeypatch.setattr(f"{stack}.running_stack", lambda *_, **__: slow(both, "stopping"))
    monkeypatch.setattr(f"{stack}.running_console", lambda *_, **__: slow(rest, "stopping"))
    monkeypatch.setattr(f"{stack}.running_audit", lambda *_, **__: slow(rest, "stopping"))
    monkeypatch.setattr(up, "ProgressLines", partial(ProgressLines, every=0.01))
    stop = threading.Event()
    stop.set()
    places = Mock(
        folder=Path("x"), broker="127.0.0.1:0", registry="127.0.0.1:0", pages=Mock(urls={})
    )
    up._run(places, stop, Format.TEXT)
    printed += capfd.readouterr().err
    order = [printed.index(text) for text in (both, rest, "Ctrl-C stops everything", "  stopping")]
    assert order == sorted(order)
