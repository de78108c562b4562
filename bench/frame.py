"""The record of a benchmark: rounds, measurements, bars, missing peers.

Rules: samples go in, medians come out, and all samples stay in the result. A bar is judged here and
nowhere else. Progress goes to `talk` (stderr), never to stdout.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

from headworks.errors import UsageError


@dataclass(slots=True)
class Samples:
    """Numbers of one unit, one a round."""

    unit: str
    values: list[float] = field(default_factory=list)

    def as_json(self) -> dict[str, Any]:
        """Median and spread, and every number."""
        return {
            "median": _short(median(self.values)),
            "low": _short(min(self.values)),
            "high": _short(max(self.values)),
            "unit": self.unit,
            "rounds": [_short(value) for value in self.values],
        }


@dataclass(slots=True)
class Measurement:
    """One thing measured of one contender, in every round."""

    what: str
    who: str
    result: Samples
    cpu: Samples | None = None

    def as_json(self) -> dict[str, Any]:
        """The measurement as the result holds it."""
        cpu = {} if self.cpu is None else {"cpu": self.cpu.as_json()}
        return {"what": self.what, "who": self.who, **self.result.as_json(), **cpu}


@dataclass(frozen=True, slots=True)
class Bar:
    """A promise: `got` is to be at least, or at most, `bar`."""

    bar: float
    got: float | None
    unit: str
    sense: str

    @property
    def ok(self) -> bool:
        """Whether it is kept; what could not be measured is not."""
        if self.got is None:
            return False
        return self.got >= self.bar if self.sense == "at least" else self.got <= self.bar

    def as_json(self) -> dict[str, Any]:
        """The bar as the result holds it."""
        got = None if self.got is None else _short(self.got)
        return {"bar": self.bar, "got": got, "ok": self.ok, "unit": self.unit, "sense": self.sense}


class Bench:
    """One run of one benchmark."""

    def __init__(
        self,
        name: str,
        folder: Path,
        *,
        quick: bool = False,
        talk: Callable[[str], None] = lambda _: None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.name = name
        self.folder = folder
        self.quick = quick
        self._talk = talk
        self._clock = clock
        self._began = clock()
        self._measurements: dict[tuple[str, str], Measurement] = {}
        self._bars: dict[str, Bar] = {}
        self._missing: dict[str, str] = {}
        self._notes: list[str] = []

    def say(self, text: str) -> None:
        """Progress, for who waits at the terminal."""
        self._talk(f"[{self._clock() - self._began:5.0f} s] {text}")

    def rounds(self, *, full: int, quick: int = 1) -> Iterator[int]:
        """The rounds' numbers. Run every case in each round: that interleaves them."""
        count = quick if self.quick else full
        for number in range(count):
            self.say(f"round {number + 1} of {count}")
            yield number

    def record(
        self,
        what: str,
        who: str,
        value: float,
        unit: str,
        *,
        cpu: float | None = None,
        cpu_unit: str = "",
    ) -> None:
        """Add one sample, and with it the CPU time that one unit of the work has cost."""
        found = self._measurements.setdefault(
            (what, who), Measurement(what, who, Samples(unit), None)
        )
        if found.result.unit != unit:
            raise UsageError(f"{what}, {who}: measured in {found.result.unit} and in {unit}")
        found.result.values.append(value)
        if cpu is not None:
            if found.cpu is None:
                found.cpu = Samples(cpu_unit)
            found.cpu.values.append(cpu)
        self.say(f"{what}, {who}: {_short(value):,} {unit}")

    def median(self, what: str, who: str) -> float | None:
        """The median so far, None if it was not measured."""
        found = self._measurements.get((what, who))
        return None if found is None else median(found.result.values)

    def ratio(self, what: str, who: str, other: str, *, other_what: str = "") -> float | None:
        """The median over the rounds of who/other, both of one round; None if one is missing."""
        mine = self._measurements.get((what, who))
        theirs = self._measurements.get((other_what or what, other))
        if mine is None or theirs is None:
            return None
        pairs = zip(mine.result.values, theirs.result.values, strict=False)
        return median(a / b for a, b in pairs)

    def bar(
        self,
        name: str,
        *,
        got: float | None,
        unit: str,
        at_least: float | None = None,
        at_most: float | None = None,
    ) -> None:
        """Judge a promise; give one of `at_least` and `at_most`."""
        if at_least is not None and at_most is None:
            self._bars[name] = Bar(at_least, got, unit, "at least")
        elif at_most is not None and at_least is None:
            self._bars[name] = Bar(at_most, got, unit, "at most")
        else:
            raise UsageError(f"bar {name!r}: give either at_least or at_most")

    def missing(self, who: str, why: str) -> None:
        """Report a contender that cannot be measured here."""
        self._missing[who] = why
        self.say(f"{who} is missing: {why}")

    def note(self, text: str) -> None:
        """Tell the reader of the result something; telling it twice does nothing."""
        if text not in self._notes:
            self._notes.append(text)

    @property
    def kept(self) -> bool:
        """Whether every bar is met."""
        return all(bar.ok for bar in self._bars.values())

    def as_json(self, *, title: str, machine: Mapping[str, Any]) -> dict[str, Any]:
        """The whole result."""
        return {
            "benchmark": self.name,
            "title": title,
            "quick": self.quick,
            "machine": dict(machine),
            "seconds": round(self._clock() - self._began),
            "measurements": {
                f"{what}: {who}": found.as_json()
                for (what, who), found in self._measurements.items()
            },
            "bars": {name: bar.as_json() for name, bar in self._bars.items()},
            "missing": self._missing,
            "notes": self._notes,
        }


def _short(value: float) -> float:
    """Four significant digits: more would be a lie."""
    short = float(f"{value:.4g}")
    return int(short) if short.is_integer() else short
