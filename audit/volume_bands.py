"""Whether a topic's volume is usual: the decision, from the counts of its producers.

The usual volume of a window of ten minutes is the median of the same window in the last five weeks.
Four forecasts follow from it:

- the usual volume itself;
- the volume a week ago;
- the usual volume, corrected by how the last three hours differed from it;
- the usual volume, corrected by how the last three days differed at this time, and then by the
  last three hours.

So a season or a new timetable is no finding for long. Where the timetable is changing, the four
disagree. A drop is therefore measured from halfway between their median and the lowest, and a
rise from halfway between their median and the highest. A change of daylight saving time moves all
by an hour, when the day before shows so. The residual of a window is the logarithm of
counted / usual.

A window alone rarely proves a drop by a third. So the residuals are added up (a cumulative sum),
less an allowance for each window. The volume is unusual when a sum passes its limit. The limit
follows the noise of counting and the MAD of the residuals in this hour of the week.

Rules: pure, and a few dozen numbers for each window. The caller passes every window once, in order.
Windows of which less than three weeks are known, or that usually have less than 50 messages, are
not judged.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import chain
from statistics import median
from typing import Self

from headworks._audit_counting import WINDOW_MS

WEEK_MS = 7 * 86_400_000
WEEKS = 5
MIN_WEEKS = 3
AHEAD_WINDOWS = 9  # windows whose usual volume is known in advance
AHEAD_MS = AHEAD_WINDOWS * WINDOW_MS
_DAY_WINDOWS, _HOUR_WINDOWS, _WEEK_HOURS = 144, 6, 168
_DAYS = 3
_LEVEL_WINDOWS = 18  # three hours
_SMOOTHED_WINDOWS = _DAYS * _DAY_WINDOWS + 2
_MIN_USUAL_MESSAGES = 50.0
_OFFSET = 5.0  # added to counts, so that the logarithm of none is defined
UNKNOWN = -1.0
_SHIFTS = (-_HOUR_WINDOWS, 0, _HOUR_WINDOWS)
_SHIFT_MEMORY = 1 / _DAY_WINDOWS
_SHIFT_GAIN = 0.8  # another shift must be this much better than none
_ALLOWED_DROP, _ALLOWED_RISE = 0.1, 0.25
_MIN_LIMIT, _COUNTING_LIMIT, _MAD_LIMIT = 0.15, 5.0, 3.5
_MAX_OVER_LIMIT = 0.35  # of a sum, so that it falls soon after the volume is usual again
_MAD_TO_DEVIATION = 1.4826
_DEFAULT_MAD = 0.06
_MAX_LEVEL = 0.7
_CAUTION = 0.5  # of the way from the median of the forecasts to the lowest, or the highest
_WEEK_AROUND = 3  # windows on each side of the one a week ago
_LAYOUT = -2.0  # of the packed numbers; an earlier one began with a sum, which is not negative


@dataclass(frozen=True, slots=True)
class UnusualVolume:
    """A window whose volume is out of its band: what was counted, and what is usual."""

    window_start: int
    counted: int
    usual: float


@dataclass(slots=True)
class TopicVolume:
    """The memory of one topic: about 1,300 numbers. `window` was judged last."""

    window: int
    # Of the windows around the next one, from 9 before to 9 after: the medians, and a week ago.
    usual: list[float]
    week_ago: list[float]
    drop: float = 0.0  # the sums
    rise: float = 0.0
    errors: list[float] = field(default_factory=lambda: [0.0] * len(_SHIFTS))  # by shift
    raw: list[float] = field(default_factory=list)  # residuals of three days, newest last
    level: list[float] = field(default_factory=list)  # corrected residuals of three hours
    hour: list[float] = field(default_factory=list)  # deviations of this hour
    mads: list[float] = field(default_factory=list)  # of each hour of five weeks, newest last

    def judge(
        self, counted: int, usual_ahead: float, week_ago_ahead: float
    ) -> UnusualVolume | None:
        """Take the next window's count, and what is known of the window AHEAD_WINDOWS of it.

        That is its usual volume, and its volume a week ago. Return the window if its volume is
        unusual.
        """
        self.window += WINDOW_MS
        self.usual = [*self.usual[1:], usual_ahead]
        self.week_ago = [*self.week_ago[1:], week_ago_ahead]
        usual = self._shifted(counted)
        if usual is None:
            self._remember(0.0, 0.0, None)
            self.drop = self.rise = 0.0
            return None
        shift, least, middle, most = usual
        raw = _residual(counted, middle)
        day = _clamped(self._day())
        level = day + _clamped(median(self.level) if self.level else 0.0)
        recent = _clamped(median(self.raw[-_LEVEL_WINDOWS:]) if self.raw else 0.0)
        low, high = _cautious(0.0, level, recent, self._week(shift, middle))
        if middle >= _MIN_USUAL_MESSAGES:
            expected = middle * math.exp(low)
            scale = self._mad() * _MAD_TO_DEVIATION
            limit = max(_MIN_LIMIT, _COUNTING_LIMIT / math.sqrt(expected + 1), _MAD_LIMIT * scale)
            most_sum = limit + _MAX_OVER_LIMIT
            below = low - _residual(counted, least) - _ALLOWED_DROP
            above = _residual(counted, most) - high - _ALLOWED_RISE
            self.drop = min(max(0.0, self.drop + below), most_sum)
            self.rise = min(max(0.0, self.rise + above), most_sum)
            unusual = self.drop > limit or self.rise > limit
            if self.rise > limit:
                expected = middle * math.exp(high)
        else:
            expected, unusual = middle, False
            self.drop = self.rise = 0.0
        self._remember(raw, raw - day, abs(raw - level))
        return UnusualVolume(self.window, counted, expected) if unusual else None

    def _shifted(self, counted: int) -> tuple[int, float, float, float] | None:
        """Return the least, the middle, and the most usual volume of this window's neighborhood.

        The first number is the shift by a change of daylight saving time, in windows.
        """
        found: list[tuple[int, float, float, float] | None] = []
        for n, shift in enumerate(_SHIFTS):
            around = self.usual[AHEAD_WINDOWS + shift - 2 : AHEAD_WINDOWS + shift + 3]
            if min(around) < 0:
                found.append(None)
                continue
            smooth = [sum(around[i : i + 3]) / 3 for i in range(3)]
            error = abs(_residual(counted, smooth[1]))
            self.errors[n] += _SHIFT_MEMORY * (error - self.errors[n])
            found.append((shift, min(smooth), smooth[1], max(smooth)))
        costs = [e if s else e * _SHIFT_GAIN for e, s in zip(self.errors, _SHIFTS, strict=True)]
        known = [n for n, one in enumerate(found) if one is not None]
        return found[min(known, key=lambda n: costs[n])] if known else None

    def _week(self, shift: int, usual: float) -> float:
        """Return the residual of this time a week ago, against today's usual volume."""
        at = AHEAD_WINDOWS + shift
        around = self.week_ago[at - _WEEK_AROUND : at + _WEEK_AROUND + 1]
        return _clamped(_residual(sum(around) / len(around), usual)) if min(around) >= 0 else 0.0

    def _day(self) -> float:
        """Return the median residual of this time of the day in the last days."""
        days = []
        for number in range(1, _DAYS + 1):
            at = len(self.raw) - number * _DAY_WINDOWS
            if at >= 1:
                days.append(sum(self.raw[at - 1 : at + 2]) / 3)
        return median(days) if days else 0.0

    def _mad(self) -> float:
        """Return the MAD of this hour of the week, and of the hours around it."""
        found = []
        for weeks in range(1, WEEKS + 1):
            at = len(self.mads) - weeks * _WEEK_HOURS
            if at >= 0:
                found += self.mads[max(0, at - 1) : at + 2]
        return median(found) if found else _DEFAULT_MAD

    def _remember(self, raw: float, corrected: float, deviation: float | None) -> None:
        self.raw.append(raw)
        del self.raw[:-_SMOOTHED_WINDOWS]
        self.level.append(corrected)
        del self.level[:-_LEVEL_WINDOWS]
        self.hour.append(_DEFAULT_MAD if deviation is None else deviation)
        if (self.window // WINDOW_MS) % _HOUR_WINDOWS == _HOUR_WINDOWS - 1:
            self.mads.append(median(self.hour))
            self.hour.clear()
            del self.mads[: -(WEEKS * _WEEK_HOURS + 1)]

    def pack(self) -> bytes:
        """Return it as bytes: the layout, the sums, the lengths of the lists, and all numbers."""
        lists = (
            *(self.usual, self.week_ago, self.errors),
            *(self.raw, self.level, self.hour, self.mads),
        )
        head = (_LAYOUT, self.drop, self.rise, *map(len, lists))
        return array("f", chain(head, *lists)).tobytes()

    @classmethod
    def unpack(cls, window: int, packed: bytes) -> Self | None:
        """Return what was packed; None if an earlier release packed it."""
        numbers = array("f", packed).tolist()
        layout, drop, rise, *lengths = numbers[:10]
        if layout != _LAYOUT:
            return None
        lists, at = [], 10
        for length in map(int, lengths):
            lists.append(numbers[at : at + length])
            at += length
        usual, week_ago, errors, raw, level, hour, mads = lists
        return cls(window, usual, week_ago, drop, rise, errors, raw, level, hour, mads)


def usual_of(counts: Sequence[int]) -> float:
    """Return the usual volume of a window by its counts in earlier weeks; -1 if it is unknown."""
    return float(median(counts)) if len(counts) >= MIN_WEEKS else UNKNOWN


def weeks_before(window: int) -> Iterable[int]:
    """Return the same window of the weeks before."""
    return range(window - WEEKS * WEEK_MS, window, WEEK_MS)


def _cautious(*forecasts: float) -> tuple[float, float]:
    """Return the forecasts from which a drop and a rise are measured."""
    middle = median(forecasts)
    return (
        middle + _CAUTION * (min(forecasts) - middle),
        middle + _CAUTION * (max(forecasts) - middle),
    )


def _residual(counted: float, usual: float) -> float:
    return math.log((counted + _OFFSET) / (usual + _OFFSET))


def _clamped(level: float) -> float:
    return min(max(level, -_MAX_LEVEL), _MAX_LEVEL)
