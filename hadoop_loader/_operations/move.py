"""A move: the warehouse continues with the topics of another cluster.

Rules:

- Offsets of one cluster mean nothing in another. So the old cluster must be loaded to its end, and
  the operator says whether the new one's messages so far are new, or copies of loaded ones.
- Nothing but the commit changes, and the consumer groups that are named. Each topic begins a new
  life: `_topic_life` keeps the rows of both clusters apart, because their offsets overlap.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from hadoop_loader._commit.commit_record import Commit
from hadoop_loader._commit.topic_lives import check_cluster
from hadoop_loader._commit.transaction import LoaderContext, Progress, Transaction
from hadoop_loader._fetch.kafka_log import Log
from hadoop_loader._fetch.ranges import Watermarks, no_leader_error
from hadoop_loader._operations.move_groups import GroupOffsets, MovedGroups
from headworks.errors import FindingsError, UsageError

BEGINNING, END = STARTS = ("beginning", "end")
_MAX_NAMED_TOPICS = 5


@dataclass(frozen=True, slots=True)
class MoveReport:
    """The result of a move."""

    number: int  # of its commit
    cluster: str  # the id of the new cluster
    offsets: Mapping[str, Mapping[int, int]]  # by topic and partition, where the next load starts
    groups: Mapping[str, Mapping[str, Mapping[int, int]]]  # ... and where each group does


class Move:
    """One move from the cluster `old` to the one that the context reads, with `groups`."""

    def __init__(
        self,
        parts: LoaderContext,
        old: Log,
        progress: Progress | None = None,
        *,
        groups: MovedGroups | None = None,
    ) -> None:
        self._context = parts
        self._old, self._groups = old, groups
        self._transaction = Transaction(parts, progress)

    def run(self, start: str | None) -> MoveReport:
        """Move; `start` is BEGINNING, END, or None, if the new topics must hold no messages yet.

        Raises UsageError for a wrong pair of clusters, or if `start` is needed. Raises
        FindingsError if the old cluster has messages that are not loaded, or a group cannot move.
        """
        if start not in (None, *STARTS):
            raise UsageError(f"{start!r} is no start", fix=f"give {' or '.join(STARTS)}")
        last = self._transaction.recover()
        if last is None:
            raise UsageError("nothing was ever loaded", fix="run `headworks load run` right away")
        before = self._old.identify(last.offsets.keys())
        after = self._context.broker.identify(self._context.broker.partitions())
        check_cluster(last, before)
        if before.cluster and before.cluster == after.cluster:
            raise UsageError(
                f"both addresses are of cluster {after.cluster}: there is nothing to move",
                fix="give --from the old cluster, and --to the new one",
            )
        self._check_loaded(last)
        offsets = self._positions(last, start)
        moved: GroupOffsets = {}
        if self._groups is not None:  # before the commit: a move that is repeated needs the old one
            moved = self._groups.plan(copied=start == END)
            self._groups.move(moved)
        builder = self._transaction.new_commit(last, "move")
        builder.cluster = after.cluster
        builder.offsets = {t: {str(p): at for p, at in ps.items()} for t, ps in offsets.items()}
        builder.topic_ids = {t: one for t, one in after.topics.items() if t in offsets}
        for topic in last.offsets.keys() & builder.tables.keys():
            state = builder.tables[topic]
            builder.tables[topic] = replace(state, earlier_lives=state.earlier_lives + 1)
        commit = self._transaction.commit(builder)
        return MoveReport(commit.number, commit.cluster, offsets, _by_topic(moved))

    def _check_loaded(self, last: Commit) -> None:
        """Raise FindingsError if the old cluster has messages that are not loaded."""
        behind = {
            topic: n
            for topic, marks in _marks(self._old, last).items()
            if (n := _unloaded(last.committed(topic), marks))
        }
        if behind:
            raise FindingsError(
                f"{sum(behind.values()):,} messages of the old cluster are not loaded: "
                f"{_named(behind)}",
                fix="stop its producers, run `headworks load run` until nothing is behind, and "
                "then move",
            )

    def _positions(self, last: Commit, start: str | None) -> dict[str, dict[int, int]]:
        """Return where the next load starts; a topic that does not exist starts when it does."""
        marks = _marks(self._context.broker, last)
        full = {t: n for t, ms in marks.items() if (n := _unloaded({}, ms))}
        if full and start is None:
            raise UsageError(
                f"topics of the new cluster hold messages already: {_named(full)}",
                fix="say what they are: --start beginning if they are new, and to be loaded; "
                "--start end if they are copies of loaded ones (a mirror's)",
            )
        return {
            topic: {p: m.high if start == END else m.low for p, m in found.items()}
            for topic, found in marks.items()
        }


def _marks(log: Log, last: Commit) -> Mapping[str, Mapping[int, Watermarks]]:
    """Return the watermarks of the topics that were loaded; UnreachableError without a leader."""
    known = log.partitions()
    topics = {t: known[t] for t in last.offsets if t in known}
    marks = log.watermarks(topics)
    for topic, partitions in topics.items():
        if away := [p for p in partitions if p not in marks[topic]]:
            raise no_leader_error(topic, away)
    return marks


def _by_topic(groups: GroupOffsets) -> Mapping[str, Mapping[str, Mapping[int, int]]]:
    found: dict[str, dict[str, dict[int, int]]] = {name: {} for name in groups}
    for name, places in groups.items():
        for place, at in sorted(places.items()):
            found[name].setdefault(place.topic, {})[place.partition] = at
    return found


def _unloaded(committed: Mapping[int, int], marks: Mapping[int, Watermarks]) -> int:
    return sum(max(0, m.high - max(committed.get(p, m.low), m.low)) for p, m in marks.items())


def _named(topics: Mapping[str, int]) -> str:
    named = [f"{topic} ({n:,})" for topic, n in sorted(topics.items())[:_MAX_NAMED_TOPICS]]
    more = len(topics) - len(named)
    return ", ".join(named) + (f", and {more} more topics" if more else "")
