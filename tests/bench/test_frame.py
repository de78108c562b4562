"""The frame of the benchmarks: samples are recorded, bars are judged, nothing is omitted."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import bench.broker
from bench.__main__ import NAMES, main
from bench.frame import Bench
from bench.processes import Usage
from bench.report import markdown, replace_section
from headworks.errors import UnreachableError, UsageError

pytestmark = pytest.mark.unit

MACHINE = {
    "processor": "a processor",
    "cores": 2,
    "memory_gb": 8.0,
    "system": "Linux",
    "python": "3.11",
    "load_before": 0.1,
    "date": "today",
    "version": "1234567",
}


@pytest.fixture
def frame(tmp_path: Path) -> Bench:
    return Bench("broker", tmp_path)


def result(frame: Bench) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(json.dumps(frame.as_json(title="T", machine=MACHINE)))
    return found


def test_rounds_become_medians_with_their_spread(frame: Bench) -> None:
    for value in (30.0, 10.0, 20.0):
        frame.record("send", "us", value, "messages/s", cpu=value / 10, cpu_unit="us/message")
    found = result(frame)["measurements"]["send: us"]
    assert found["median"] == 20
    assert (found["low"], found["high"]) == (10, 30)
    assert found["rounds"] == [30, 10, 20]
    assert found["unit"] == "messages/s"
    assert found["cpu"]["median"] == 2
    assert found["cpu"]["unit"] == "us/message"


def test_a_ratio_pairs_what_one_round_measured(frame: Bench) -> None:
    # In the second round the machine was ten times slower, for both: each was twice as fast.
    for us, peer in ((200.0, 100.0), (20.0, 10.0), (240.0, 100.0)):
        frame.record("send", "us", us, "/s")
        frame.record("send", "peer", peer, "/s")
    assert frame.ratio("send", "us", "peer") == 2
    assert frame.ratio("send", "us", "nobody") is None


def test_one_measurement_has_one_unit(frame: Bench) -> None:
    frame.record("send", "us", 1, "MB/s")
    with pytest.raises(UsageError, match="measured in MB/s and in ms"):
        frame.record("send", "us", 1, "ms")


@pytest.mark.parametrize(
    ("got", "limits", "ok"),
    [
        (3.0, {"at_least": 3.0}, True),
        (2.9, {"at_least": 3.0}, False),
        (10.5, {"at_most": 10.5}, True),
        (10.6, {"at_most": 10.5}, False),
        (None, {"at_least": 3.0}, False),
        (None, {"at_most": 3.0}, False),
    ],
)
def test_bars_are_judged(
    frame: Bench, got: float | None, limits: dict[str, float], ok: bool
) -> None:
    frame.bar("a bar", got=got, unit="x", **limits)
    assert frame.kept is ok
    found = result(frame)["bars"]["a bar"]
    assert found["ok"] is ok
    assert found["got"] == got
    assert found["bar"] in limits.values()
    assert found["unit"] == "x"


def test_a_bar_has_one_sense(frame: Bench) -> None:
    for limits in ({}, {"at_least": 1.0, "at_most": 2.0}):
        with pytest.raises(UsageError, match="either"):
            frame.bar("a bar", got=1, unit="x", **limits)


def test_a_quick_run_has_fewer_rounds(tmp_path: Path) -> None:
    assert list(Bench("x", tmp_path).rounds(full=3)) == [0, 1, 2]
    assert list(Bench("x", tmp_path, quick=True).rounds(full=3)) == [0]


def test_the_report_leaves_nothing_out(frame: Bench) -> None:
    frame.record("send", "us", 123456, "messages/s")
    frame.record("send", "us", 223456, "messages/s")
    frame.bar("fast", at_least=3, got=2.5, unit="x")
    frame.bar("small", at_most=3, got=None, unit="MB")
    frame.missing("RabbitMQ", "not installed")
    frame.note("a native client")
    text = markdown(result(frame))
    assert "| send | us | 173,500 messages/s | 123,500 - 223,500 |" in text
    assert "| fast | at least 3x | 2.5x | **missed** |" in text
    assert "| small | at most 3 MB | not measured | **missed** |" in text
    assert "Missing: RabbitMQ: not installed" in text
    assert "a native client" in text


def test_a_report_replaces_its_own_tables_and_no_others(frame: Bench) -> None:
    frame.bar("fast", at_least=3, got=4, unit="x")
    document = (
        "before\n<!-- begin broker -->\nold\n<!-- end broker -->\nbetween\n"
        "<!-- begin registry -->\nkept\n<!-- end registry -->\nafter\n"
    )
    once = replace_section(document, result(frame))
    assert "old" not in once
    assert "| fast | at least 3x | 4x | met |" in once
    for kept in ("before\n", "\nbetween\n", "\nkept\n", "\nafter\n"):
        assert kept in once
    assert replace_section(once, result(frame)) == once
    with pytest.raises(UsageError, match="no place for the tables of 'broker'"):
        replace_section("nothing", result(frame))


@pytest.mark.e2e
def test_cpu_time_and_memory_of_a_process_are_seen() -> None:
    busy = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    try:
        usage = Usage(busy.pid)
        while usage.now().cpu < 0.2:
            assert busy.poll() is None
        assert usage.now().resident > 1 << 20
    finally:
        busy.kill()
        busy.wait()
    with pytest.raises(UnreachableError, match="has ended"):
        usage.now()


@pytest.fixture
def signals() -> Iterator[None]:
    """`main` takes SIGTERM for itself, as a program may."""
    before = signal.getsignal(signal.SIGTERM)
    yield
    signal.signal(signal.SIGTERM, before)


@pytest.mark.e2e
@pytest.mark.usefixtures("signals")
@pytest.mark.parametrize(("got", "code"), [(4.0, 0), (2.0, 1)])
def test_the_exit_code_tells_whether_the_bars_are_met(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    got: float,
    code: int,
) -> None:
    def run(frame: Bench) -> None:
        assert frame.quick
        assert frame.folder.parent == tmp_path
        frame.say("working")
        frame.bar("fast", at_least=3, got=got, unit="x")

    monkeypatch.setattr(bench.broker, "run", run)
    command = ["broker", "--quick", "--format", "json", "--scratch", str(tmp_path)]
    assert main(command) == code
    out, talk = capsys.readouterr()
    found = json.loads(out)
    assert found["benchmark"] == "broker"
    assert found["quick"] is True
    assert found["bars"]["fast"]["got"] == got
    assert set(MACHINE) <= set(found["machine"])
    assert "working" in talk
    assert not list(tmp_path.iterdir())

    saved = tmp_path / "result.json"
    saved.write_text(out, encoding="utf-8")
    document = tmp_path / "benchmarks.md"
    document.write_text("<!-- begin broker -->\n<!-- end broker -->\n", encoding="utf-8")
    assert main(["report", str(saved), "--into", str(document)]) == 0
    assert f"| fast | at least 3x | {got:g}x |" in document.read_text(encoding="utf-8")


@pytest.mark.usefixtures("signals")
def test_what_is_no_result_is_refused(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert main(["report", str(tmp_path / "none.json")]) == 2
    assert "not a result" in capsys.readouterr().err


def test_every_benchmark_has_a_title_and_a_place_in_the_document() -> None:
    root = Path(__file__).parents[2]
    document = (root / "docs" / "benchmarks.md").read_text(encoding="utf-8")
    for name in NAMES:
        if (root / "bench" / name).is_dir() or (root / "bench" / f"{name}.py").is_file():
            assert f"<!-- begin {name} -->" in document
            assert f"<!-- end {name} -->" in document
            assert f"python -m bench {name}" in document
