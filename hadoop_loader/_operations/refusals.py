"""Refusals of commands on one topic: commands ask here before Spark has started, and after it.

Rule: the first answer spares ten seconds, and decides nothing. Another loader may commit before the
command holds the warehouse, so the operation asks again.
"""

from __future__ import annotations

from collections.abc import Container

from hadoop_loader._commit.commit_log import CommitLog
from hadoop_loader._commit.commit_record import Commit, TableState
from hadoop_loader._commit.held_tables import HeldTable
from hadoop_loader._commit.topic_lives import check_cluster
from hadoop_loader._fetch.kafka_log import KafkaLog
from hadoop_loader._fetch.log_identity import LogIdentity
from hadoop_loader._storage.filesystem import AnyPath
from headworks._kafka.client_properties import client_properties
from headworks.errors import UsageError


def check_cluster_id(root: AnyPath, cluster: str | None) -> None:
    """Refuse another cluster than that of the last commit, without Spark."""
    state = root / "_headworks"
    last = CommitLog(state).latest() if (state / "commits").is_dir() else None
    check_cluster(last, LogIdentity(cluster or ""))


def check_table(root: AnyPath, topic: str | None) -> None:
    """Refuse a topic without a table, without Spark; None stands for every topic."""
    if topic is not None:
        table_of(CommitLog.of(root).latest(), topic, root)


def check_drop(root: AnyPath, bootstrap: str, topic: str, *, reload: bool) -> None:
    """Refuse a drop as `Drop` would, without Spark."""
    check_table(root, topic)
    if not reload:
        require_gone(topic, KafkaLog(client_properties(bootstrap)).partitions())


def check_acknowledge(root: AnyPath, topic: str) -> None:
    """Refuse an acknowledgement as `Acknowledge` would, without Spark."""
    log = CommitLog.of(root)
    last = log.latest()
    if not held_commits(log, last.tables.get(topic) if last else None):
        refusal_of(log, topic)


def require_gone(topic: str, on_broker: Container[str]) -> None:
    """Raise UsageError for a topic that is still on the broker."""
    if topic in on_broker:
        raise UsageError(
            f"topic {topic} is still on the broker: the next load would make its table again",
            fix=f"delete the topic first (`headworks topic delete {topic}`), or give --reload "
            "to load it again from the first message that the broker has",
        )


def held_commits(log: CommitLog, state: TableState | None) -> list[HeldTable]:
    """Return the commits that hold a table."""
    if state is None:
        return []
    return [one for one in log.held.entries() if one.table == state.files_table]


def refusal_of(log: CommitLog, topic: str) -> str:
    """Return why the last load refused a topic; UsageError if it did not."""
    report = log.last_run() or {}
    for one in report.get("refused", []):
        if one["topic"] == topic:
            return str(one["reason"])
    raise UsageError(
        f"topic {topic} is neither held nor refused: there is nothing to acknowledge",
        fix="`headworks load status` shows what the last load could not do",
    )


def table_of(last: Commit | None, topic: str, root: AnyPath) -> tuple[Commit, TableState]:
    """Return the last commit and a topic's table in it; UsageError if the topic has none."""
    state = last.tables.get(topic) if last else None
    if last is None or state is None:
        raise UsageError(
            f"topic {topic} has no table in {root}",
            fix="`headworks load status` lists those that have one",
        )
    return last, state
