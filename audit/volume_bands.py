"""Whether a topic's volume is usual: the decision, from the counts of its producers.

The usual volume of a window of ten minutes is the median of the same window in the last five weeks.
A change of daylight saving time moves it by an hour, when the day before shows so. The residual of
a window is the logarithm of counted / usual. Two corrections forecast it:

- the season: half of how the last three days differed at this time of the day;
- the level: how the windows of the last hour differed beyond that, the newest most.

So a season or a new timetable is no finding for long. The level before a drop is the one to measure
it from, because a drop would soon lower the level itself. The judge therefore takes the last
window, the last two, and so on to the last hour. It compares each number of windows with the level
before them. The volume is unusual if their deviations add up to more than the limit, beyond an
allowance for each window. The limit follows the noise of counting and the MAD of the residuals in
this hour of the week. While the volume is unusual, the level is kept, for three hours at most. It
follows a quarter down and a third up only, so that a slow fade is found, too.

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
_SEASON = 0.5  # of the difference of the last days
_GAIN = 0.2  # of a window in the level
_FORGET = 0.9  # of the level, for a window of which nothing is known
_JUDGED_WINDOWS = 6  # together, at most
_KEEP_LEVEL_WINDOWS = 18  # three hours
_KEPT_WINDOWS = _DAYS * _DAY_WINDOWS + 2
_MIN_USUAL_MESSAGES = 50.0
_OFFSET = 5.0  # added to counts, so that the logarithm of none is defined
UNKNOWN = -1.0
_SHIFTS = (-_HOUR_WINDOWS, 0, _HOUR_WINDOWS)
_SHIFT_MEMORY = 1 / _DAY_WINDOWS
_SHIFT_GAIN = 0.8  # another shift must be this much better than none
_ALLOWED_DROP, _ALLOWED_RISE = 0.14, 0.4
_MIN_LIMIT, _COUNTING_LIMIT, _MAD_LIMIT = 0.15, 4.5, 4.0
_MAD_TO_DEVIATION = 1.4826
_DEFAULT_MAD = 0.06
_MAX_SEASON, _MAX_LEVEL = 0.7, 0.3
_LAYOUT = -3.0  # of the packed numbers; the first layout began with a sum, which is not negative


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
    usual: list[float]  # of the windows around the next one, from 9 before to 9 after
    unusual: int = 0  # windows in a row, the last one included
    errors: list[float] = field(default_factory=lambda: [0.0] * len(_SHIFTS))  # by shift
    raw: list[float] = field(default_factory=list)  # residuals of three days, newest last
    levels: list[float] = field(default_factory=lambda: [0.0] * _JUDGED_WINDOWS)  # before windows
    # How far the last windows were below and above the season, against their neighborhoods.
    below: list[float] = field(default_factory=list)
    above: list[float] = field(default_factory=list)
    hour: list[float] = field(default_factory=list)  # deviations of this hour
    mads: list[float] = field(default_factory=list)  # of each hour of five weeks, newest last

    def judge(self, counted: int, usual_ahead: float) -> UnusualVolume | None:
        """Take the next window's count, and the usual volume of the window AHEAD_WINDOWS of it.

        Return the window if its volume is unusual.
        """
        self.window += WINDOW_MS
        self.usual = [*self.usual[1:], usual_ahead]
        usual = self._around(counted)
        if usual is None:
            self._forget(0.0, self.levels[-1] * _FORGET, None)
            return None
        least, middle, most = usual
        raw, season, level = _residual(counted, middle), self._season(), self.levels[-1]
        deviation = raw - season - level
        following = _clamped(level + _GAIN * deviation, _MAX_LEVEL)
        if middle < _MIN_USUAL_MESSAGES:
            self._forget(raw, following, abs(deviation))
            return None
        self.below = [*self.below, season - _residual(counted, least)][-_JUDGED_WINDOWS:]
        self.above = [*self.above, _residual(counted, most) - season][-_JUDGED_WINDOWS:]
        before = self._level_before(self._limit(middle * math.exp(season + level)))
        self.unusual = 0 if before is None else self.unusual + 1
        if before is None or self.unusual > _KEEP_LEVEL_WINDOWS:
            self._remember(raw, following, abs(deviation))
        else:
            self._remember(raw, before, abs(deviation))
            self.levels = [before] * _JUDGED_WINDOWS
        if before is None:
            return None
        return UnusualVolume(self.window, counted, middle * math.exp(season + before))

    def _level_before(self, limit: float) -> float | None:
        """Return the level before the unusual volume began, or None if the volume is usual."""
        below = above = 0.0
        for number in range(1, len(self.below) + 1):
            level = self.levels[-number]
            below += self.below[-number] - _ALLOWED_DROP
            above += self.above[-number] - _ALLOWED_RISE
            fell = below + number * level > limit and self.below[-1] + level > 0
            if fell or (above - number * level > limit and self.above[-1] - level > 0):
                return level
        return None

    def _limit(self, expected: float) -> float:
        counting = _COUNTING_LIMIT / math.sqrt(expected + 1)
        return max(_MIN_LIMIT, counting, _MAD_LIMIT * _MAD_TO_DEVIATION * self._mad())

    def _around(self, counted: int) -> tuple[float, float, float] | None:
        """Return the least, the middle, and the most usual volume of this window's neighborhood.

        A change of daylight saving time shifts the neighborhood by an hour.
        """
        found: list[tuple[float, float, float] | None] = []
        for n, shift in enumerate(_SHIFTS):
            around = self.usual[AHEAD_WINDOWS + shift - 2 : AHEAD_WINDOWS + shift + 3]
            if min(around) < 0:
                found.append(None)
                continue
            smooth = [sum(around[i : i + 3]) / 3 for i in range(3)]
            error = abs(_residual(counted, smooth[1]))
            self.errors[n] += _SHIFT_MEMORY * (error - self.errors[n])
            found.append((min(smooth), smooth[1], max(smooth)))
        costs = [e if s else e * _SHIFT_GAIN for e, s in zip(self.errors, _SHIFTS, strict=True)]
        known = [n for n, one in enumerate(found) if one is not None]
        return found[min(known, key=lambda n: costs[n])] if known else None

    def _season(self) -> float:
        """Return the part of the last days' median residual at this time that is expected again."""
        days = []
        for number in range(1, _DAYS + 1):
            at = len(self.raw) - number * _DAY_WINDOWS
            if at >= 1:
                days.append(sum(self.raw[at - 1 : at + 2]) / 3)
        return _SEASON * _clamped(median(days), _MAX_SEASON) if days else 0.0

    def _mad(self) -> float:
        """Return the MAD of this hour of the week, and of the hours around it."""
        found = []
        for weeks in range(1, WEEKS + 1):
            at = len(self.mads) - weeks * _WEEK_HOURS
            if at >= 0:
                found += self.mads[max(0, at - 1) : at + 2]
        return median(found) if found else _DEFAULT_MAD

    def _forget(self, raw: float, level: float, deviation: float | None) -> None:
        """Remember a window that is not judged."""
        self.unusual = 0
        self.below, self.above = [], []
        self._remember(raw, level, deviation)

    def _remember(self, raw: float, level: float, deviation: float | None) -> None:
        """Remember a window: its residual, the level after it, and how far it was from both."""
        self.raw.append(raw)
        del self.raw[:-_KEPT_WINDOWS]
        self.levels = [*self.levels[1:], level]
        self.hour.append(_DEFAULT_MAD if deviation is None else deviation)
        if (self.window // WINDOW_MS) % _HOUR_WINDOWS == _HOUR_WINDOWS - 1:
            self.mads.append(median(self.hour))
            self.hour.clear()
            del self.mads[: -(WEEKS * _WEEK_HOURS + 1)]

    def pack(self) -> bytes:
        """Return it as bytes: the layout, the lengths of the lists, and all numbers."""
        lists = (
            *(self.usual, self.errors, self.raw, self.levels),
            *(self.below, self.above, self.hour, self.mads),
        )
        head = (_LAYOUT, self.unusual, *map(len, lists))
        return array("f", chain(head, *lists)).tobytes()

    @classmethod
    def unpack(cls, window: int, packed: bytes) -> Self | None:
        """Return what was packed; None if an earlier release packed it."""
        numbers = array("f", packed).tolist()
        if numbers[0] != _LAYOUT:
            return None
        lists, at = [], 10
        for length in map(int, numbers[2:at]):
            lists.append(numbers[at : at + length])
            at += length
        usual, errors, raw, levels, below, above, hour, mads = lists
        unusual = int(numbers[1])
        return cls(window, usual, unusual, errors, raw, levels, below, above, hour, mads)


def usual_of(counts: Sequence[int]) -> float:
    """Return the usual volume of a window by its counts in earlier weeks; -1 if it is unknown."""
    return float(median(counts)) if len(counts) >= MIN_WEEKS else UNKNOWN


def weeks_before(window: int) -> Iterable[int]:
    """Return the same window of the weeks before."""
    return range(window - WEEKS * WEEK_MS, window, WEEK_MS)


def _residual(counted: float, usual: float) -> float:
    return math.log((counted + _OFFSET) / (usual + _OFFSET))


def _clamped(value: float, most: float) -> float:
    return min(max(value, -most), most)
