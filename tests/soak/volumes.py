"""The volume bands on a year of real flights, with drops and spikes injected: the long form.

Every flight of 2013 makes about four messages in each window from three hours before its departure
to an hour after it, as a pipeline of check-ins, bags, and gates would. Each topic has the flights
of an airport or an airline, or all of them.

Rules:

- Every choice comes from the seed.
- A drop by 30 % or a doubling lasts an hour. It begins where more than 100 messages a window are
  usual, from an hour before until an hour after.
- Alarms are counted in the year without injections. Alarms within six hours are one. Holidays and
  the changes of daylight saving time are counted apart: their volume is unusual.
- On any day an alarm is false if the flights themselves, without the noise, were within 20 % of
  their usual volume all the last hour.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from itertools import chain
from random import Random

from headworks._audit.volume_bands import AHEAD_WINDOWS, UNKNOWN, WEEKS, TopicVolume, usual_of
from headworks._audit_counting import WINDOW_MS
from headworks._cli.demo.source import FlightData

AIRPORTS = ("EWR", "JFK", "LGA")
AIRLINES = ("UA", "B6", "EV")
ALL = "all"
_WEEK = 7 * 144
_BEFORE, _AFTER = 18, 6  # windows of a flight
_MESSAGES = 4  # of a flight and window
_LENGTH = 6  # windows of an injected change
_HOUR = (1, 3, 6)  # windows that are compared together with the usual volume
_FAR = 200  # windows between two of them
_SHARE = 0.95  # of the drops
_ONE_ALARM = 36  # windows
_MONTH = 30.4 * 144
_START = datetime(2013, 1, 1, tzinfo=UTC)
_TRAINING = 4 * _WEEK
_UNUSUAL_DAYS = (  # the first and last day of each: holidays with travel, and clock changes
    (date(2013, 1, 1), date(2013, 1, 3)),
    (date(2013, 1, 20), date(2013, 1, 23)),  # Martin Luther King Day
    (date(2013, 2, 16), date(2013, 2, 19)),  # Presidents' Day
    (date(2013, 3, 9), date(2013, 3, 12)),  # daylight saving time begins
    (date(2013, 3, 30), date(2013, 4, 2)),  # Easter
    (date(2013, 5, 25), date(2013, 5, 29)),  # Memorial Day
    (date(2013, 7, 2), date(2013, 7, 8)),  # Independence Day
    (date(2013, 8, 30), date(2013, 9, 4)),  # Labor Day
    (date(2013, 10, 12), date(2013, 10, 15)),  # Columbus Day
    (date(2013, 11, 2), date(2013, 11, 5)),  # daylight saving time ends
    (date(2013, 11, 10), date(2013, 11, 13)),  # Veterans Day
    (date(2013, 11, 22), date(2013, 12, 3)),  # Thanksgiving
    (date(2013, 12, 21), date(2013, 12, 31)),
)


@dataclass
class TopicReport:
    """The findings of one topic in all rounds."""

    median: int  # messages in a window
    months: float = 0.0
    alarms: int = 0  # on ordinary days
    holiday_alarms: int = 0
    false_alarms: int = 0  # on any day, by the flights themselves
    injected: Counter[str] = field(default_factory=Counter)  # by kind
    found: Counter[str] = field(default_factory=Counter)
    late: list[int] = field(default_factory=list)  # windows from its first one to the alarm

    def __str__(self) -> str:
        kinds = ", ".join(f"{self.found[k]} of {n} {k}s" for k, n in sorted(self.injected.items()))
        late = sum(self.late) / max(1, len(self.late))
        return (
            f"{self.median} messages in a median window, found {kinds}, "
            f"on average in window {1 + late:.1f} of the change; "
            f"{self.alarms / self.months:.2f} alarms a month on ordinary days, "
            f"{self.holiday_alarms / self.months:.2f} more on holidays and clock changes; "
            f"of both, {self.false_alarms / self.months:.2f} false by the flights themselves"
        )


@dataclass
class Report:
    """The observations of a replay; `wrong` must be empty.

    Of all drops, 95 % must be found, and of those of each topic no less than chance explains.
    Each topic may have one alarm a month on ordinary days, and one false alarm a month in the
    whole year.
    """

    topics: dict[str, TopicReport] = field(default_factory=dict)

    @property
    def wrong(self) -> list[str]:
        wrong = []
        for name, seen in self.topics.items():
            if seen.alarms > seen.months:
                wrong.append(f"{name}: more than one alarm a month on ordinary days")
            if seen.false_alarms > seen.months:
                wrong.append(f"{name}: more than one false alarm a month")
            injected, found = seen.injected["drop"], seen.found["drop"]
            if found < _SHARE * injected - 2 * math.sqrt(injected * _SHARE * (1 - _SHARE)):
                wrong.append(f"{name}: fewer than 95 % of the drops were found")
        injected = sum(seen.injected["drop"] for seen in self.topics.values())
        if sum(seen.found["drop"] for seen in self.topics.values()) < _SHARE * injected:
            wrong.append("fewer than 95 % of all drops were found")
        return wrong

    def __str__(self) -> str:
        return "\n".join([*(f"{name}: {seen}" for name, seen in self.topics.items()), *self.wrong])


def replay(
    seed: int,
    topics: Sequence[str] = (ALL, *AIRPORTS, *AIRLINES),
    *,
    days: int = 365,
    each: int = 60,
    rounds: int = 4,
) -> Report:
    """Replay the first `days` of the year, with and without `each` injected changes a topic.

    Every round has its own noise of counting, and its own changes.
    """
    chance, report = Random(seed), Report()
    for topic, counts in _flights(topics, days * 144).items():
        report.topics[topic] = seen = TopicReport(sorted(counts)[len(counts) // 2])
        ordinary = _near_usual(counts)
        for _ in range(rounds):
            # As many messages, each with its own chance.
            noisy = [max(0, round(chance.gauss(n, n**0.5))) for n in counts]
            _judge_topic(chance, seen, noisy, ordinary, each)
    return report


def _judge_topic(
    chance: Random,
    seen: TopicReport,
    counts: Sequence[int],
    near_usual: Sequence[bool],
    each: int,
) -> None:
    usual = [_usual(counts, window) for window in range(len(counts) + AHEAD_WINDOWS + 1)]
    raised = list(_episodes(_alarms(counts, usual)))
    holidays = sum(map(_is_unusual_day, raised))
    seen.months += (len(counts) - _TRAINING) / _MONTH
    seen.alarms += len(raised) - holidays
    seen.holiday_alarms += holidays
    seen.false_alarms += sum(near_usual[window] for window in raised)
    busy = [
        window
        for window in range(_TRAINING, len(counts) - 2 * _LENGTH)
        if min(usual[window - _LENGTH : window + 2 * _LENGTH]) > 100
    ]
    changed, starts = list(counts), dict[int, str]()
    while len(starts) < each:
        start = chance.choice(busy)
        if all(abs(start - other) > _FAR for other in starts):
            starts[start] = kind = chance.choice(("drop", "drop", "spike"))
            for window in range(start, start + _LENGTH):
                changed[window] = _changed(chance, counts[window], kind)
    alarms = _alarms(changed, usual)
    seen.injected.update(starts.values())
    for start, kind in starts.items():
        late = next((n for n in range(_LENGTH) if alarms[start + n]), None)
        if late is not None:
            seen.found[kind] += 1
            seen.late.append(late)


def _flights(topics: Sequence[str], windows: int) -> Mapping[str, list[int]]:
    counts = {topic: [0] * windows for topic in topics}
    data, halves = FlightData(), (1, 2) if windows > 181 * 144 else (1,)
    for row in chain.from_iterable(data.half_year("flights", half) for half in halves):
        hour = datetime.fromisoformat(row["time_hour"] or "")
        departure = hour.replace(tzinfo=UTC) + timedelta(minutes=int(row["minute"] or 0))
        window = int((departure - _START).total_seconds()) // 600
        for topic in {ALL, row["origin"], row["carrier"]} & counts.keys():
            mine = counts[str(topic)]
            for at in range(max(0, window - _BEFORE), min(windows, window + _AFTER)):
                mine[at] += _MESSAGES
    return counts


def _usual(counts: Sequence[int], window: int) -> float:
    before = range(window - WEEKS * _WEEK, window, _WEEK)
    return usual_of([counts[at] for at in before if at >= 0])


def _alarms(counts: Sequence[int], usual: Sequence[float]) -> list[bool]:
    volume = TopicVolume(-WINDOW_MS, [UNKNOWN] * (2 * AHEAD_WINDOWS + 1))
    return [
        volume.judge(n, usual[window + AHEAD_WINDOWS]) is not None
        for window, n in enumerate(counts)
    ]


def _near_usual(counts: Sequence[int]) -> list[bool]:
    """Return the windows at which the last one, three, and six together are usual within 20 %."""
    usual = [max(0.0, _usual(counts, window)) for window in range(len(counts))]
    near = []
    for end in range(1, len(counts) + 1):
        sums = [(sum(counts[end - n : end]), sum(usual[end - n : end])) for n in _HOUR if n <= end]
        near.append(all(expected / 1.2 <= n <= 1.2 * expected for n, expected in sums))
    return near


def _episodes(alarms: Sequence[bool]) -> Iterator[int]:
    last = -_ONE_ALARM
    for window, alarm in enumerate(alarms):
        if alarm:
            if window - last >= _ONE_ALARM:
                yield window
            last = window


def _is_unusual_day(window: int) -> bool:
    day = (_START + timedelta(minutes=10 * window)).date()
    return any(first <= day <= last for first, last in _UNUSUAL_DAYS)


def _changed(chance: Random, count: int, kind: str) -> int:
    if kind == "spike":
        return 2 * count
    return sum(chance.random() < 0.7 for _ in range(count))
