"""The consumer groups: the state of each, and a group's offset in every partition."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from headworks._ci.verdict import DownstreamConsumer
from headworks._console.sources.groups import GroupRow, GroupsSnapshot, StateSince
from headworks._console.views.charts import Chart, Period
from headworks._console.views.paging import ListPage, ListQuery, list_page
from headworks._console.views.visibility import CanSee
from headworks.groups import GroupPosition, MemberDescription

_ORDER = ("stopped", "stalled", "falling behind", "rewound", "ok")


@dataclass(frozen=True, slots=True)
class GroupLine:
    """A group in the list."""

    name: str
    kind: str
    active: bool
    members: int
    topics: tuple[str, ...]
    lag: int
    behind_ms: int | None
    state: str
    because: str
    since: StateSince
    lags: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class GroupList:
    """The visible groups, those that need attention first."""

    known: bool
    part: ListPage[GroupLine]
    unwell: int


@dataclass(frozen=True, slots=True)
class PositionLine:
    """A group's offset and lag in one partition."""

    topic: str
    partition: int
    committed: int | None
    end: int | None
    lag: int | None
    behind_ms: int | None
    owner: str | None


@dataclass(frozen=True, slots=True)
class GroupPage:
    """A group, its members, and its offsets."""

    line: GroupLine
    members: tuple[MemberDescription, ...]
    positions: tuple[PositionLine, ...]
    span: str = "hour"
    period: Period | None = None
    charts: tuple[Chart, ...] = ()


@dataclass(frozen=True, slots=True)
class TopicConsumer:
    """A reader of a topic and how it is known; for a group also its lag in this topic.

    `state` is None for a reader that is only declared, and `behind_ms` is None if it is unknown.
    """

    name: str
    known_from: str
    state: str | None
    because: str | None
    lag: int
    behind_ms: int | None


def topic_consumers(
    topic: str,
    readers: Iterable[DownstreamConsumer],
    groups: GroupsSnapshot | None,
    can_see: CanSee,
) -> tuple[TopicConsumer, ...]:
    """Return a topic's readers: groups, the worst first, then those that are only declared."""
    rows = groups.rows if groups else {}
    # A group that is declared and has committed as well is one reader.
    once = {one.name: one for one in reversed(list(readers))}
    found = [_reader(topic, one, rows.get(one.name), can_see) for one in once.values()]
    return tuple(
        sorted(
            found,
            key=lambda one: (
                _ORDER.index(one.state) if one.state else len(_ORDER),
                -one.lag,
                one.name,
            ),
        )
    )


def _reader(
    topic: str, one: DownstreamConsumer, row: GroupRow | None, can_see: CanSee
) -> TopicConsumer:
    if row is None or not can_see.group(one.name):
        return TopicConsumer(one.name, one.known_from, None, None, 0, None)
    line = _line(row, can_see)
    here = replace(row.group, positions=tuple(p for p in row.group.positions if p.topic == topic))
    return TopicConsumer(
        one.name, one.known_from, line.state, line.because, here.lag, here.behind_ms
    )


def group_list(groups: GroupsSnapshot | None, can_see: CanSee, query: ListQuery) -> GroupList:
    """Return the requested page of the list of groups."""
    lines = group_lines(groups, can_see)
    part = list_page(
        lines,
        query,
        lambda row: f"{row.name} {' '.join(row.topics)}",
        (lambda row: row.name)
        if query.sort == "name"
        else (lambda row: (_ORDER.index(row.state), -row.lag, row.name)),
    )
    return GroupList(groups is not None, part, sum(1 for line in lines if line.state != "ok"))


def group_lines(groups: GroupsSnapshot | None, can_see: CanSee) -> list[GroupLine]:
    """Return a line for every visible group."""
    return [
        _line(row, can_see)
        for name, row in (groups.rows.items() if groups else ())
        if can_see.group(name)
    ]


def group_page(groups: GroupsSnapshot | None, name: str, can_see: CanSee) -> GroupPage | None:
    """Return one group, or None if it does not exist or is not visible."""
    row = groups.rows.get(name) if groups and can_see.group(name) else None
    if row is None:
        return None
    positions = tuple(_position(p) for p in row.group.positions if can_see.topic(p.topic))
    return GroupPage(_line(row, can_see), row.group.members, positions)


def _line(row: GroupRow, can_see: CanSee) -> GroupLine:
    group = row.group
    seen = tuple(topic for topic in row.topics if can_see.topic(topic))
    return GroupLine(
        group.name,
        group.kind.value,
        group.active,
        len(group.members),
        seen,
        group.lag,
        group.behind_ms,
        row.state.value,
        row.because if len(seen) == len(row.topics) else row.state.value,
        row.since,
        row.lags,
    )


def _position(p: GroupPosition) -> PositionLine:
    return PositionLine(
        p.topic, p.partition, p.committed, p.log_end_offset, p.lag, p.behind_ms, p.owner
    )
