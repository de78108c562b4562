"""Damage files at rest, one case at a time, and follow the way out that the program names.

A case copies a site (the files of a server, written by the server itself), damages one file, and
starts the server on it. It ends well in one of two ways:

- everything is served, and right;
- damage is reported with the file, the byte (if a file has bytes), and a fix. The case follows the
  fix, to the letter where it is a command. Then everything that is still whole on disk is served.

Anything that is missing without a report, and any value that differs from the ledger, is wrong.

Rules:

- A site brings its own kinds of damage, and its own ledger: `SITES`.
- Every choice comes from the seed, and each case has a seed of its own, which a failure names.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from random import Random
from typing import Protocol

from tests.soak.damage_broker import BrokerSite
from tests.soak.damage_stores import STORES, StoreSite
from tests.soak.damage_warehouse import WarehouseSite


class Site(Protocol):
    """The files of a server that can be damaged."""

    def prepare(self) -> None:
        """Write the files with the server itself, and the ledger of what they hold."""

    def run(self, folder: Path, random: Random) -> tuple[str, str, list[str]]:
        """Run a case in `folder`: the kind of damage, how it ended, and what was wrong."""


SITES: Mapping[str, Callable[[Path], Site]] = {
    "broker": BrokerSite,
    "warehouse": WarehouseSite,
    **{name: partial(StoreSite, kind=kind) for name, kind in STORES.items()},
}


@dataclass(slots=True)
class Report:
    """The observations of a campaign; `wrong` must be empty."""

    cases: int = 0
    endings: Counter[str] = field(default_factory=Counter)
    kinds: Counter[str] = field(default_factory=Counter)
    seconds: float = 0.0
    wrong: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        endings = ", ".join(f"{count} {name}" for name, count in sorted(self.endings.items()))
        lines = [
            f"{self.cases} cases of {len(self.kinds)} kinds in {self.seconds:.0f} s: {endings}",
            *self.wrong[:40],
        ]
        return "\n".join(lines)


def campaign(folder: Path, cases: int, seed: int) -> Report:
    """Run `cases` cases, spread over the sites."""
    began, report = time.monotonic(), Report()
    sites = {name: make(folder / name) for name, make in SITES.items()}
    for site in sites.values():
        site.prepare()
    names = sorted(sites)
    for number in range(cases):
        name = names[number % len(names)]
        case = f"{seed}-{number}"
        kind, ending, wrong = sites[name].run(folder / f"case-{number}", Random(case))
        report.cases += 1
        report.endings[ending] += 1
        report.kinds[f"{name} {kind}"] += 1
        report.wrong += [f"case {number}, {name}, {kind}: {line}" for line in wrong]
    report.seconds = time.monotonic() - began
    return report
