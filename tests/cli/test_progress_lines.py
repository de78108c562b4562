"""Progress without a terminal: long work prints lines, short work none."""

from __future__ import annotations

import os
import re
import time

import pytest

from headworks._cli.demo.progress import DemoProgress
from headworks._cli.progress_lines import ProgressLines
from headworks._cli.warehouse_options import phases

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


def test_lines_arrive_while_stderr_is_turned_away(capfd: pytest.CaptureFixture[str]) -> None:
    lines = ProgressLines("starting", every=0.01)
    before = os.dup(2)
    try:
        with open(os.devnull, "wb") as nothing:
            os.dup2(nothing.fileno(), 2)
        with lines:
            time.sleep(0.2)
    finally:
        os.dup2(before, 2)
        os.close(before)
    assert "starting" in capfd.readouterr().err


def test_a_step_of_the_demo_is_one_line_in_a_log(capfd: pytest.CaptureFixture[str]) -> None:
    progress = DemoProgress()
    with progress.step("produce"), progress.bar("flights", 2000) as advance:
        for _ in range(2000):
            advance()
    assert capfd.readouterr().err == "  produce: 0.0 s\n"
