"""Hurt producers in every way there is, one after the other, and open the books after each.

The law and the child process are those of tests/producer_sdk/accounts.py. Here the ends, the
policies, the sizes, the clock and the broker's absences (up to a minute) are drawn from the seed.
"""

from __future__ import annotations

import time
import traceback
from collections.abc import Callable
from pathlib import Path
from random import Random

from headworks._cli.stack.ports import free_ports
from headworks._server import child_process
from producer_sdk import WhenFull
from tests.producer_sdk.accounts import ENDS, Child, check, run
from tests.producer_sdk.events import new_site
from tests.soak.siege import Report

_LONGEST_ABSENCE = 60.0
_MOST = 10  # what is wrong is wrong often


def hurt(folder: Path, seconds: float, seed: int) -> Report:
    """Go on for so long; a case that has begun is ended."""
    chance, report, began = Random(seed), Report(), time.monotonic()
    store = f"sqlite:///{folder / 'registry.db'}"
    folder.mkdir(parents=True, exist_ok=True)
    with child_process.start(
        ["registry", "start", "--listen", "127.0.0.1:0", "--store", store]
    ) as registry:
        broker = _Broker(folder / "broker")
        try:
            while time.monotonic() - began < seconds and len(report.wrong) < _MOST:
                absence = chance.choice([0.0, 0.0, chance.uniform(0.1, _LONGEST_ABSENCE)])
                absence = min(absence, max(0.0, seconds - (time.monotonic() - began)))
                _case(folder, broker, registry.url, chance, absence, report)
        finally:
            broker.stop()
    report.seconds = time.monotonic() - began
    return report


def _case(
    folder: Path, broker: _Broker, registry: str, chance: Random, absence: float, report: Report
) -> None:
    here = folder / f"case-{sum(report.counts.values())}"
    here.mkdir()
    site = new_site(here, broker.address, registry)
    child = Child(
        chance.choice(ENDS),
        chance.choice([100, 2000, 20_000]),
        chance.choice(list(WhenFull)),
        queue=chance.choice([50, 1000, 100_000]),
        pause=0.001 if absence else 0.0,
        close_timeout=absence + 30,
        clock=tuple(chance.randint(-50, 50) for _ in range(chance.choice([0, 100]))),
    )
    began = time.monotonic()
    try:
        check(run(site, child, meanwhile=[lambda: broker.away(absence)]), child)
    except Exception:
        report.wrong.append(f"{child}, broker away {absence:.1f} s: {traceback.format_exc()}")
    report.slowest = max(report.slowest, time.monotonic() - began)
    report.counts[f"{child.when_full}, {child.end}{', broker away' if absence else ''}"] += 1


class _Broker:
    """A broker that comes back at its address."""

    def __init__(self, folder: Path) -> None:
        self.address = f"127.0.0.1:{free_ports(1)[0]}"
        command = ["broker", "start", "--listen", self.address, "--data-dir", str(folder)]
        self._start: Callable[[], child_process.Service] = lambda: child_process.start(command)
        self._running = self._start()

    def away(self, seconds: float) -> None:
        if seconds:
            time.sleep(0.2)
            self.stop()
            time.sleep(seconds)
            self._running = self._start()

    def stop(self) -> None:
        self._running.stop()
