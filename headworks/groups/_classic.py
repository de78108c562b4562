"""Groups that a broker balances, through Kafka's administration protocol.

Rules: one call lists all groups, and one describes any number of them. Offsets take a call per
group, up to a hundred at a time. There is never a call per topic. It works with Apache Kafka too.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import Future
from typing import Any, TypeVar

import confluent_kafka
from confluent_kafka import (
    ConsumerGroupState,
    ConsumerGroupTopicPartitions,
    KafkaError,
    KafkaException,
)
from confluent_kafka.admin import AdminClient

from headworks._kafka.client_properties import client_properties
from headworks._kafka.clients import KafkaConsumer
from headworks._kafka.group_requests import committed_offsets, describe_groups
from headworks.errors import HeadworksError, RefusedError, UnreachableError, UsageError
from headworks.groups._model import (
    GroupDescription,
    GroupKind,
    GroupListing,
    MemberDescription,
    TopicPartition,
    positions_of,
)

T = TypeVar("T")
_TIMEOUT_SECONDS = 15.0
_WAIT_SECONDS = 20.0  # the client's own error, after its timeout, says more than that none came
_MAX_IN_FLIGHT_CALLS = 100
_COORDINATOR_PAUSE_SECONDS = 0.2
_COORDINATOR_SECONDS = 30.0  # a busy cluster that was just started took 11
# A group's coordinator is chosen or moves, as in a cluster that was just started.
_COORDINATOR_CHANGES = {
    KafkaError.NOT_COORDINATOR,
    KafkaError.COORDINATOR_NOT_AVAILABLE,
    KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
}
_ACTIVE_STATES = {"stable", "preparing_rebalancing", "completing_rebalancing"}
_STOP_CONSUMERS = (
    "stop the consumers of the group, which has members; --zookeeper shows members of the"
    " decentralized kind"
)
_GROUP_IN_USE_ERRORS = {KafkaError.UNKNOWN_MEMBER_ID, KafkaError.NON_EMPTY_GROUP}
_UNREACHABLE_ERRORS = {
    KafkaError._TRANSPORT,
    KafkaError._ALL_BROKERS_DOWN,
    KafkaError._TIMED_OUT,
    KafkaError._TIMED_OUT_QUEUE,
    KafkaError.REQUEST_TIMED_OUT,
    KafkaError.COORDINATOR_NOT_AVAILABLE,
}


class ClassicGroups:
    """The classic groups of the cluster at `bootstrap`."""

    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap
        self._admin = AdminClient({**client_properties(bootstrap), "log_level": 2})

    def listed(self) -> list[GroupListing]:
        """Return all groups, sorted by name; UnreachableError if no broker answers."""
        found = self._result(self._admin.list_consumer_groups(request_timeout=_TIMEOUT_SECONDS))
        if found.errors and not found.valid:
            raise self._error("list the groups", found.errors[0])
        return sorted(
            (
                GroupListing(
                    g.group_id,
                    GroupKind.CLASSIC,
                    _state(g.state) in _ACTIVE_STATES,
                    _state(g.state),
                )
                for g in found.valid
            ),
            key=lambda listed: listed.name,
        )

    def described(self, names: Sequence[str]) -> list[GroupDescription]:
        """Return the state, members, and offsets of groups; an unknown group is `dead`."""
        if not names:
            return []
        states = {}
        for name, future in describe_groups(self._admin, names).items():
            told = self._result(future, f"describe group {name}")
            members = tuple(
                MemberDescription(
                    member.member_id,
                    member.host.lstrip("/"),
                    tuple(
                        TopicPartition(p.topic, p.partition)
                        for p in (member.assignment.topic_partitions if member.assignment else ())
                    ),
                )
                for member in told.members
            )
            states[name] = _state(told.state), members
        found = []
        for name, offsets in self._offsets(names).items():
            state, members = states[name]
            owners = {partition: one.name for one in members for partition in one.partitions}
            positions, active = positions_of(owners, offsets), state in _ACTIVE_STATES
            found.append(
                GroupDescription(name, GroupKind.CLASSIC, active, state, members, positions)
            )
        return found

    def _offsets(self, names: Sequence[str]) -> dict[str, dict[TopicPartition, int]]:
        """Return the committed offsets of groups."""
        found: dict[str, dict[TopicPartition, int]] = {}
        for first in range(0, len(names), _MAX_IN_FLIGHT_CALLS):
            some = names[first : first + _MAX_IN_FLIGHT_CALLS]
            futures = {name: committed_offsets(self._admin, name) for name in some}
            for name, future in futures.items():
                told = self._result(future, f"read the offsets of group {name}")
                found[name] = {
                    TopicPartition(p.topic, p.partition): p.offset
                    for p in told.topic_partitions
                    if p.error is None and p.offset >= 0
                }
        return found

    def set_offsets(self, name: str, offsets: Mapping[TopicPartition, int]) -> None:
        """Commit offsets for a group without members; RefusedError if it has some."""
        asked = [
            confluent_kafka.TopicPartition(*partition, offset)
            for partition, offset in offsets.items()
        ]
        deadline = time.monotonic() + _COORDINATOR_SECONDS
        self._await_coordinator(name, asked[:1], deadline)
        while (refused := self._refused_offset(name, asked)) is not None:
            if refused.error.code() not in _COORDINATOR_CHANGES or time.monotonic() > deadline:
                where = f"set group {name} in {refused.topic} partition {refused.partition}"
                raise self._error(where, KafkaException(refused.error))
            time.sleep(_COORDINATOR_PAUSE_SECONDS)

    def _await_coordinator(
        self, name: str, some: list[confluent_kafka.TopicPartition], deadline: float
    ) -> None:
        """Return when the group has a coordinator; UnreachableError if it gets none.

        librdkafka's administration client asks three times for one, within a second. Without one,
        its call runs into the timeout, and its end can hang. A consumer asks until there is one.
        """
        consumer = KafkaConsumer(
            {**client_properties(self._bootstrap), "log_level": 2, "group.id": name}
        )
        try:
            while not self._has_coordinator(name, consumer, some, deadline):
                time.sleep(_COORDINATOR_PAUSE_SECONDS)
        finally:
            consumer.close()

    def _has_coordinator(
        self,
        name: str,
        consumer: KafkaConsumer,
        some: list[confluent_kafka.TopicPartition],
        deadline: float,
    ) -> bool:
        try:
            consumer.committed(some, timeout=max(1.0, deadline - time.monotonic()))
        except KafkaException as error:
            changing = error.args[0].code() in _COORDINATOR_CHANGES
            if not changing or time.monotonic() > deadline:
                raise self._error(f"find the coordinator of group {name}", error) from None
            return False
        return True

    def _refused_offset(self, name: str, asked: list[confluent_kafka.TopicPartition]) -> Any:
        """Commit offsets; return the first partition with an error, or None."""
        futures = self._admin.alter_consumer_group_offsets(
            [ConsumerGroupTopicPartitions(name, asked)], request_timeout=_TIMEOUT_SECONDS
        )
        told = self._result(futures[name], f"set the offsets of group {name}")
        return next((one for one in told.topic_partitions if one.error is not None), None)

    def delete(self, name: str) -> None:
        """Delete a group without members, and its offsets; RefusedError if it has some."""
        futures = self._admin.delete_consumer_groups([name], request_timeout=_TIMEOUT_SECONDS)
        self._result(futures[name], f"delete group {name}")

    def partitions(self, topics: Iterable[str]) -> list[TopicPartition]:
        """Return all partitions of topics, by one call; UsageError for a missing topic."""
        asked = set(topics)
        found = self.present(asked)
        missing = sorted(asked - {partition.topic for partition in found})
        if missing:
            raise UsageError(f"there is no topic {missing[0]!r}", fix="see `headworks topic list`")
        return found

    def present(self, topics: Iterable[str]) -> list[TopicPartition]:
        """Return all partitions of the topics that exist, by one call."""
        try:
            known = self._admin.list_topics(timeout=_TIMEOUT_SECONDS).topics
        except KafkaException as error:
            raise self._error("list the topics", error) from None
        there = sorted(set(topics) & set(known))
        return [
            TopicPartition(topic, number)
            for topic in there
            for number in sorted(known[topic].partitions)
        ]

    def check(self, what: str, errors: Iterable[KafkaException]) -> None:
        """Raise the first of the client's errors that is not of a missing partition."""
        for error in errors:
            if error.args[0].code() not in _ABSENT_PARTITION_ERRORS:
                raise self._error(what, error)

    @property
    def admin(self) -> AdminClient:
        """The administration client, for lookups of log offsets."""
        return self._admin

    def _result(self, future: Future[Any], what: str = "list the groups") -> Any:
        try:
            return future.result(_WAIT_SECONDS)
        except KafkaException as error:
            raise self._error(what, error) from None
        except TimeoutError:
            raise self._unreachable(f"{_WAIT_SECONDS:g} s were not enough to {what}") from None

    def _error(self, what: str, error: Any) -> HeadworksError:
        problem = error.args[0] if isinstance(error, KafkaException) else error
        if problem.code() in _UNREACHABLE_ERRORS:
            return self._unreachable(problem.str())
        return RefusedError(
            f"the broker refused to {what}: {problem.str()}",
            code=problem.code(),
            fix=_STOP_CONSUMERS if problem.code() in _GROUP_IN_USE_ERRORS else None,
        )

    def _unreachable(self, problem: str) -> UnreachableError:
        return UnreachableError(
            f"no broker answers at {self._bootstrap}: {problem}",
            fix="start one with `headworks up`, or give --bootstrap",
        )


_ABSENT_PARTITION_ERRORS = {
    KafkaError.UNKNOWN_TOPIC_OR_PART,
    KafkaError._UNKNOWN_PARTITION,
    KafkaError._UNKNOWN_TOPIC,
    KafkaError.LEADER_NOT_AVAILABLE,
    KafkaError.TOPIC_AUTHORIZATION_FAILED,
}


def _state(state: ConsumerGroupState | None) -> str:
    return "unknown" if state is None else state.name.lower()
