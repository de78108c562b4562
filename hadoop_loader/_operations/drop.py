"""Dropping a topic's table, and giving up what can never be done for a topic.

Rules:

- A drop removes view, table, and files at once, and the offsets. So a topic that still exists would
  be loaded again from its first message: it is refused unless the caller wants just that.
- `Acknowledge` gives up the held part of a commit: the table goes back to the state before it, and
  the messages of it count as lost. It says so in the commit, in the report, and in the log.
- `Acknowledge` of a topic that is only refused records the reason. Loads then report the topic as
  acknowledged while the reason is the same, and do not fail for it.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass

from hadoop_loader._commit.commit_builder import CommitBuilder
from hadoop_loader._commit.commit_log import no_warehouse_error
from hadoop_loader._commit.commit_record import TopicCommit
from hadoop_loader._commit.held_tables import HeldTable
from hadoop_loader._commit.transaction import LoaderContext, Progress, Transaction
from hadoop_loader._operations.refusals import (
    held_commits,
    refusal_of,
    require_gone,
    table_of,
)
from headworks.errors import CorruptError

_LOG = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class DropReport:
    """The result of a drop."""

    number: int  # of its commit
    topic: str
    table: str
    rows: int  # that the table had


@dataclass(frozen=True, slots=True)
class AcknowledgeReport:
    """The result of an acknowledgement."""

    number: int  # of its commit
    topic: str
    lost: int  # messages of the held commit
    reason: str | None  # of the refusal that loads no longer fail for


class Drop:
    """One drop of a topic's table."""

    def __init__(self, parts: LoaderContext, progress: Progress | None = None) -> None:
        self._context = parts
        self._transaction = Transaction(parts, progress)

    def run(self, topic: str, *, reload: bool = False) -> DropReport:
        """Drop a table; UsageError if there is none, or the topic exists and not `reload`."""
        last, state = table_of(self._transaction.recover(), topic, self._context.root)
        if not reload:
            require_gone(topic, self._context.broker.partitions())
        builder = self._transaction.new_commit(last, "drop")
        builder.drop(topic)
        commit = self._transaction.commit(builder)
        self._transaction.failures.require(state.files_table)
        return DropReport(commit.number, topic, state.table, state.rows)


class Acknowledge:
    """Gives up what can never be done for a topic; see the module."""

    def __init__(self, parts: LoaderContext, progress: Progress | None = None) -> None:
        self._context = parts
        self._transaction = Transaction(parts, progress)

    def run(self, topic: str) -> AcknowledgeReport:
        """Give up; UsageError if the topic is neither held nor refused by the last load."""
        last = self._transaction.recover()
        if last is None:
            raise no_warehouse_error(self._context.root)
        builder = self._transaction.new_commit(last, "acknowledge")
        state = last.tables.get(topic)
        held = held_commits(self._context.log, state)
        lost = sum(self._give_up(builder, topic, one) for one in held)
        reason = None if held else refusal_of(self._context.log, topic)
        if reason is not None:
            builder.acknowledged[topic] = reason
        for one in held:  # `recover` has tried in vain again
            self._transaction.failures.errors.pop(one.table, None)
        commit = self._transaction.commit(builder)
        for one in held:
            self._context.log.held.remove(one.number, {one.table})
        return AcknowledgeReport(commit.number, topic, lost, reason)

    def _give_up(self, builder: CommitBuilder, topic: str, held: HeldTable) -> int:
        """Take a table back to the state before the commit that held it; return what is lost."""
        log = self._context.log
        if held.number - 1 not in (0, *log.numbers()):
            raise CorruptError(
                f"commit {held.number - 1} is gone, which has the state of {held.table} before",
                fix=f"drop the table: `headworks load drop {topic} --reload`",
            )
        before = log.read(held.number - 1) if held.number > 1 else None
        commit = log.read(held.number)
        counts = commit.topics.get(topic)
        lost = counts.rows + counts.quarantined if counts and commit.kind == "load" else 0
        builder.take_back(topic, before)
        if lost and topic in builder.tables:
            builder.count(topic, _lost(lost), self._transaction.now_ms())
        _LOG.warning(
            "the part of %s %d for topic %s was given up: %d messages are lost",
            commit.kind,
            commit.number,
            topic,
            lost,
            extra={"topic": topic, "lost": lost},
        )
        return lost


def _lost(messages: int) -> TopicCommit:
    return TopicCommit({}, 0, 0, 0, messages, 0, {}, {}, None, None)
