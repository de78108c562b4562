"""An hour of a healthy installation: nothing is red, and no alert fires.

Traffic goes on all the time, and loads come every 4 to 15 minutes, drawn from the seed. One
producer is deployed anew (stopped and started) in the middle. Every five seconds the console's
first page, its heatmap, its groups, and Prometheus's alerts are read. The hour begins when every
server was read once, and every topic was counted.

Rule: an alert that is pending is counted, and only one that fires is wrong.
"""

from __future__ import annotations

import json
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

from tests.soak.live import Installation, installation
from tests.soak.live_traffic import TOPICS
from tests.soak.process import PATIENCE

_LOOK_SECONDS = 5.0
_GAP_SECONDS = (4 * 60.0, 15 * 60.0)
_MAX_WRONG = 40
_GROUPS = 2
_COUNTING = 2  # the highest grade of a cell that is no trouble
_TROUBLE = ("warn", "bad")


@dataclass
class Report:
    """The readings; `wrong` must be empty."""

    minutes: float = 0.0
    looks: int = 0
    loads: int = 0
    gaps: list[float] = field(default_factory=list)  # seconds between loads
    levels: Counter[str] = field(default_factory=Counter)  # of checks
    groups: Counter[str] = field(default_factory=Counter)  # states
    cells: Counter[int] = field(default_factory=Counter)  # grades
    pending: Counter[str] = field(default_factory=Counter)
    messages: int = 0
    wrong: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        def said(counted: Counter[Any]) -> str:
            return ", ".join(f"{n:,} {name}" for name, n in counted.most_common()) or "none"

        gaps = ", ".join(f"{gap / 60:.1f}" for gap in self.gaps)
        return "\n".join(
            [
                f"{self.minutes:.0f} min, {self.looks} looks, {self.messages:,} messages, "
                f"{self.loads} loads, {gaps} min apart",
                f"checks: {said(self.levels)}",
                f"cells by grade: {said(self.cells)}",
                f"groups: {said(self.groups)}",
                f"pending alerts: {said(self.pending)}",
                *self.wrong,
            ]
        )


def watch(folder: Path, seconds: float, seed: int, *, loads: bool = True) -> Report:
    """Look at a healthy installation for so long, and load there with the real loader."""
    chance, report = Random(seed), Report()
    with installation(folder) as one:
        _start_traffic(one)
        _wait_until_started(one)
        began = time.monotonic()
        next_load, deploy = began + min(60.0, seconds / 4), began + seconds / 2
        last_load: float | None = None
        end = began + seconds
        while len(report.wrong) < _MAX_WRONG:
            now = time.monotonic()
            if now >= end and report.looks > 1:
                break
            if loads and now >= next_load:
                # A loader that is started anew loads at once: so the gaps are free.
                if "load" in one.children:
                    one.end("load")
                one.load("1h")
                report.loads += 1
                report.gaps += [now - last_load] if last_load is not None else []
                last_load, next_load = now, now + chance.uniform(*_GAP_SECONDS)
            if now >= deploy:
                one.end("shop")
                one.traffic("shop", "produce", "checkout", "shop.orders=2", "iot.readings=0.3")
                deploy = began + 10 * seconds
            _look(one, report)
            time.sleep(_LOOK_SECONDS)
        report.minutes = (time.monotonic() - began) / 60
    return report


def _start_traffic(one: Installation) -> None:
    one.traffic("web", "produce", "storefront", "web.pageviews=10")
    one.traffic("shop", "produce", "checkout", "shop.orders=2", "iot.readings=0.3")
    one.traffic("fraud", "consume", "fraud-detector", "0", "shop.orders", "web.pageviews")
    one.traffic("rooms", "consume", "room-climate", "5", "iot.readings")


def _wait_until_started(one: Installation) -> None:
    """Wait until everything was read once, and every topic was counted."""
    deadline = time.monotonic() + PATIENCE
    while True:
        home, groups = one.page("/home.json"), one.page("/groups.json")
        known = {check["level"] for check in home["checks"] if check["name"] != "loads"}
        counted = len(home["part"]["rows"]), len(groups["part"]["rows"])
        if known == {"good"} and counted == (len(TOPICS), _GROUPS):
            return
        assert time.monotonic() < deadline, (home, groups)
        time.sleep(1.0)


def _look(one: Installation, report: Report) -> None:
    report.looks += 1
    at = time.strftime("%H:%M:%S", time.gmtime())
    home, groups = one.page("/home.json"), one.page("/groups.json")
    for check in home["checks"]:
        report.levels[check["level"]] += 1
        if check["level"] in _TROUBLE:
            report.wrong.append(f"{at} {check['level']}: {check['name']}: {check['says']}")
    for row in home["part"]["rows"]:
        for cell in row["cells"]:
            report.cells[cell["grade"]] += 1
            if cell["grade"] > _COUNTING:
                report.wrong.append(f"{at} {row['topic']} {cell['mark']}: {cell['says']}")
    report.wrong += [f"{at} finding: {json.dumps(found)}" for found in home["troubles"]]
    report.messages = sum(row["states"]["attempted"] for row in home["part"]["rows"])
    for group in groups["part"]["rows"]:
        report.groups[group["state"]] += 1
        if group["state"] != "ok":
            report.wrong.append(f"{at} group {group['name']}: {json.dumps(group)}")
    for alert in one.alerts():
        name = alert["labels"]["alertname"]
        report.pending[name] += alert["state"] == "pending"
        if alert["state"] == "firing":
            report.wrong.append(f"{at} alert {name}: {alert['annotations']['summary']}")
