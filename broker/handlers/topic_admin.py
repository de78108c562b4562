"""CreateTopics, DeleteTopics, CreatePartitions, and reassignments.

Rules: the reply is sent after the change, so the next request sees it. A partition never moves, so
no reassignment is ever in progress.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any
from uuid import UUID

from headworks._broker.coordination import TopicExistsError
from headworks._broker.handlers.leadership import check_changeable
from headworks._broker.handlers.node import Node, Request
from headworks._broker.topics import (
    CONFIGS,
    HostedTopic,
    InvalidConfigError,
    InvalidTopicError,
    MissingSubjectError,
    TooManyPartitionsError,
)
from headworks._kafka.error_codes import ErrorCode, refused
from headworks._kafka.protocol.messages import Fields
from headworks.errors import RefusedError, UnreachableError

_MAX_PARTITIONS = 10_000
_DELETED_BY_ID_VERSION = 6  # from which DeleteTopics may name a topic by its id
_DEFAULT_SOURCE, _TOPIC_SOURCE = 5, 1


async def create_topics(node: Node, request: Request) -> Fields:
    """Create topics, or with `validate_only` check whether they could be created."""
    message = request.message
    named = Counter(topic.name for topic in message.topics)
    results = []
    for topic in message.topics:
        fields: dict[str, Any] = {"name": topic.name, "topic_id": None, "error_message": None}
        try:
            if named[topic.name] > 1:
                raise refused(ErrorCode.INVALID_REQUEST, "the topic is named twice")
            _check_allowed(node, request, topic.name)
            fields |= await _create(node, topic, validate_only=message.validate_only)
            fields["error_code"] = ErrorCode.NONE
        except RefusedError as error:
            fields |= {
                "error_code": ErrorCode(error.code),
                "error_message": str(error),
                "configs": None,
            }
        results.append(fields)
    return {"topics": results}


async def _create(node: Node, topic: Any, *, validate_only: bool) -> dict[str, Any]:
    assignment = _assignment(node, topic.assignments)
    if assignment is None:
        count = _partition_count(node, topic)
    elif topic.num_partitions != -1 or topic.replication_factor != -1:
        raise refused(ErrorCode.INVALID_REQUEST, "give assignments or numbers, not both")
    else:
        count = len(assignment)
    configs = {config.name: config.value or "" for config in topic.configs}
    if topic.name in node.hosted.topics:  # unless another broker has just deleted it
        await node.topic_lookup.refresh(topic.name)
    try:
        topic_id = None
        if validate_only:
            node.hosted.check_new(topic.name, count, configs)
            await node.topic_changes.subject_rule.check(topic.name)
        else:
            created = await node.topic_changes.create(topic.name, count, configs, assignment)
            _check_served(created)
            topic_id = created.topic_id
    except InvalidTopicError as error:
        raise refused(ErrorCode.INVALID_TOPIC_EXCEPTION, str(error)) from None
    except TopicExistsError as error:
        raise refused(ErrorCode.TOPIC_ALREADY_EXISTS, str(error)) from None
    except InvalidConfigError as error:
        raise refused(ErrorCode.INVALID_CONFIG, str(error)) from None
    except (TooManyPartitionsError, MissingSubjectError) as error:
        raise refused(ErrorCode.POLICY_VIOLATION, str(error)) from None
    except UnreachableError as error:
        raise refused(ErrorCode.REQUEST_TIMED_OUT, str(error)) from None
    shown = {name: key.default for name, key in CONFIGS.items()} | {**node.hosted.defaults}
    return {
        "topic_id": topic_id,
        "num_partitions": count,
        "replication_factor": 1,
        "configs": [
            {
                "name": name,
                "value": configs.get(name, value),
                "read_only": False,
                "config_source": _TOPIC_SOURCE if name in configs else _DEFAULT_SOURCE,
                "is_sensitive": False,
            }
            for name, value in shown.items()
        ],
    }


def _partition_count(node: Node, topic: Any) -> int:
    """Return the requested number of partitions, or the broker's default."""
    if topic.replication_factor not in (-1, 1):
        raise refused(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"replication factor {topic.replication_factor}: a partition is at one broker, so"
            f" it is 1",
        )
    count = int(topic.num_partitions)
    if count == -1:
        return node.default_partitions
    _check_count(count)
    return count


def _assignment(node: Node, assignments: Any) -> tuple[int, ...] | None:
    """Return the broker of each partition, if the request names them."""
    if not assignments:
        return None
    brokers = {assigned.partition_index: assigned.broker_ids for assigned in assignments}
    if sorted(brokers) != list(range(len(assignments))):
        raise refused(ErrorCode.INVALID_REPLICA_ASSIGNMENT, "partitions are not numbered from 0 up")
    return _brokers(node, [brokers[index] for index in range(len(brokers))])


def _brokers(node: Node, wanted: Sequence[Sequence[int]]) -> tuple[int, ...]:
    """Return one living broker for each partition."""
    living = {*node.coordination.members, node.node_id}
    for brokers in wanted:
        if len(brokers) != 1 or brokers[0] not in living:
            names = ", ".join(map(str, sorted(living)))
            raise refused(
                ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                f"brokers {list(brokers)}: a partition is at one broker, of those alive: {names}",
            )
    return tuple(brokers[0] for brokers in wanted)


def _check_count(count: int) -> None:
    if not 1 <= count <= _MAX_PARTITIONS:
        raise refused(
            ErrorCode.INVALID_PARTITIONS, f"{count} partitions: 1 to {_MAX_PARTITIONS} are allowed"
        )


def _check_served(topic: HostedTopic) -> None:
    """Raise if a new topic has partitions that could not be opened, for lack of disk space."""
    for index, refusal in topic.refused.items():
        raise refused(
            ErrorCode.KAFKA_STORAGE_ERROR,
            f"{topic.name} is there, but partition {index} cannot be served now:"
            f" {refusal.reason}; that is tried again when a client asks for the topic",
        )


def _check_allowed(node: Node, request: Request, name: str) -> None:
    if not node.coordination.lease_valid:
        raise refused(
            ErrorCode.NOT_CONTROLLER, "this broker is not sure of its place in the cluster"
        )
    if not request.may_use_topic(name):
        raise refused(
            ErrorCode.TOPIC_AUTHORIZATION_FAILED,
            f"{request.client.principal.name} is not an admin of topic {name!r}",
        )


async def delete_topics(node: Node, request: Request) -> Fields:
    """Delete topics; the reply is sent when they are gone."""
    message = request.message
    if request.version < _DELETED_BY_ID_VERSION:
        named = [(name, None) for name in message.topic_names]
    else:
        named = [(topic.name, topic.topic_id) for topic in message.topics]
    responses = []
    for asked, topic_id in named:
        error, text, name = ErrorCode.NONE, None, asked
        try:
            name = _name_to_delete(node, asked, topic_id)
            _check_allowed(node, request, name)
            if await node.topic_lookup.find(name) is None:
                raise refused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {name!r}")
            check_changeable(node, name)
            await node.topic_changes.delete(name)
        except RefusedError as refusal:
            error, text = ErrorCode(refusal.code), str(refusal)
            name = asked  # an id must not reveal its name to a client that may not see the topic
            if asked is None and error == ErrorCode.TOPIC_AUTHORIZATION_FAILED:
                text = f"{request.client.principal.name} is not an admin of this topic"
        responses.append(
            {"name": name, "topic_id": topic_id, "error_code": error, "error_message": text}
        )
    return {"responses": responses}


def _name_to_delete(node: Node, name: str | None, topic_id: UUID | None) -> str:
    if (name is None) == (topic_id is None):
        raise refused(ErrorCode.INVALID_REQUEST, "name a topic by its name or by its id")
    if name is not None:
        return name
    topic = node.hosted.by_id(topic_id)
    if topic is None:
        raise refused(ErrorCode.UNKNOWN_TOPIC_ID, "there is no topic with this id")
    return topic.name


async def create_partitions(node: Node, request: Request) -> Fields:
    """Add partitions to topics."""
    results = []
    for asked in request.message.topics:
        error, text = ErrorCode.NONE, None
        try:
            _check_allowed(node, request, asked.name)
            await _grow(node, asked, validate_only=request.message.validate_only)
        except RefusedError as refusal:
            error, text = ErrorCode(refusal.code), str(refusal)
        results.append({"name": asked.name, "error_code": error, "error_message": text})
    return {"results": results}


async def _grow(node: Node, asked: Any, *, validate_only: bool) -> None:
    await node.topic_lookup.refresh(asked.name)
    topic = node.hosted.topics.get(asked.name)
    if topic is None:
        raise refused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {asked.name!r}")
    check_changeable(node, asked.name)
    _check_count(asked.count)
    if asked.count <= topic.count:
        raise refused(
            ErrorCode.INVALID_PARTITIONS,
            f"{asked.name} has {topic.count} partitions; the number can only grow",
        )
    added = None
    if asked.assignments is not None:
        if len(asked.assignments) != asked.count - topic.count:
            raise refused(
                ErrorCode.INVALID_REPLICA_ASSIGNMENT, "one assignment is needed per new partition"
            )
        added = _brokers(node, [assigned.broker_ids for assigned in asked.assignments])
    if not validate_only:
        try:
            await node.topic_changes.add_partitions(asked.name, asked.count, added)
            _check_served(topic)
        except TooManyPartitionsError as error:
            raise refused(ErrorCode.POLICY_VIOLATION, str(error)) from None
        except InvalidTopicError as error:
            raise refused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, str(error)) from None


async def list_partition_reassignments(node: Node, request: Request) -> Fields:  # noqa: ARG001
    """Return that no partition is being moved."""
    if not request.may_use_broker():
        return {
            "error_code": ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
            "error_message": f"{request.client.principal.name} is not an admin of all topics",
            "topics": [],
        }
    return {"error_code": ErrorCode.NONE, "error_message": None, "topics": []}


async def alter_partition_reassignments(node: Node, request: Request) -> Fields:
    """Accept the broker that a partition has already, and refuse every other one."""
    responses = []
    for topic in request.message.topics:
        answers = []
        for asked in topic.partitions:
            error, text = ErrorCode.NONE, None
            try:
                _check_allowed(node, request, topic.name)
                _check_stays(node, topic.name, asked)
            except RefusedError as refusal:
                error, text = ErrorCode(refusal.code), str(refusal)
            answers.append(
                {
                    "partition_index": asked.partition_index,
                    "error_code": error,
                    "error_message": text,
                }
            )
        responses.append({"name": topic.name, "partitions": answers})
    return {"error_code": ErrorCode.NONE, "error_message": None, "responses": responses}


def _check_stays(node: Node, name: str, asked: Any) -> None:
    """Raise unless a partition is asked to be where it is."""
    topic = node.hosted.topics.get(name)
    if topic is None or not 0 <= asked.partition_index < topic.count:
        raise refused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "there is no such partition")
    if asked.replicas is None:
        raise refused(ErrorCode.NO_REASSIGNMENT_IN_PROGRESS, "the partition is not being moved")
    broker = topic.assignment[asked.partition_index]
    if list(asked.replicas) != [broker]:
        raise refused(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            f"the partition has one replica, on broker {broker}, and never moves",
        )
