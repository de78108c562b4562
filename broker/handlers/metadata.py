"""Metadata: brokers, topics, partitions, and leaders. It creates topics on demand.

Rules:

- A reply without errors is cached until a topic or a broker changes.
- A partition that could not be opened is tried again when a client names its topic.
- A missing topic is created only if the client and the broker allow it, and if the client may
  produce to it. Producers ask for that, and consumers do not.
- A listing omits the topics that the client may not see.
- A topic that is asked for by its id is never created.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Any
from uuid import UUID

from headworks._broker.coordination import ClusterMember, StoreFailureError, TopicExistsError
from headworks._broker.handlers.authorized_operations import cluster_operations, topic_operations
from headworks._broker.handlers.leadership import leader_of
from headworks._broker.handlers.node import Node, Request
from headworks._broker.log.partition import LEADER_EPOCH
from headworks._broker.topics import (
    KAFKAS_TOPICS,
    HostedTopic,
    InvalidTopicError,
    MissingSubjectError,
    TooManyPartitionsError,
)
from headworks._kafka.error_codes import ErrorCode
from headworks._kafka.protocol.apis import APIS, ApiKey
from headworks._kafka.protocol.messages import Fields, encode
from headworks.errors import UnreachableError

_log = logging.getLogger(__name__)
_TOPICS_PER_TURN = 200
_BY_ID_VERSION = 12  # from which a topic may be named by its id


async def metadata(node: Node, request: Request) -> bytes:
    """Answer for the named topics, or for all."""
    hosted = node.hosted
    asked = request.message.topics
    # each once, however often it is named: a topic's answer may be 10,000 times as long as its name
    names = (
        None
        if asked is None
        else tuple(dict.fromkeys((topic.name, getattr(topic, "topic_id", None)) for topic in asked))
    )
    message = request.message
    operations = (
        getattr(message, "include_cluster_authorized_operations", False),
        getattr(message, "include_topic_authorized_operations", False),
    )
    question = (request.version, names, request.client.visibility, operations)
    version = hosted.version
    kept = node.reply_cache.find(question, version)
    if kept is not None:
        return kept
    fields, lasting = await _answer(node, request, names)
    if not lasting:
        node.counters.count_errors(request.header.key, fields)
    body = encode(APIS[request.header.key], request.version, fields)
    if lasting and version == hosted.version:  # nothing changed while it was put together
        node.reply_cache.keep(question, version, body)
    return body


async def _answer(
    node: Node, request: Request, names: tuple[tuple[str | None, UUID | None], ...] | None
) -> tuple[Fields, bool]:
    """Return the fields of the reply, and whether they stay valid until the topics change."""
    if request.version == 0 and not names:
        names = None  # version 0 cannot say null: an empty list means all
    create = node.auto_create_topics and getattr(request.message, "allow_auto_topic_creation", True)
    if names is None:
        topics = [
            topic_fields(node, topic)
            for name, topic in node.hosted.topics.items()
            if request.client.sees_topic(request.header.key, name)
        ]
    else:
        topics = []
        for number, (name, topic_id) in enumerate(names):
            if number % _TOPICS_PER_TURN == _TOPICS_PER_TURN - 1:
                await asyncio.sleep(0)  # let other clients be served
            if topic_id is None and name is not None:
                topics.append(await _named(node, request, name, create=create))
            else:
                topics.append(await _by_id(node, request, name, topic_id))
    if getattr(request.message, "include_topic_authorized_operations", False):
        for topic in topics:
            if not topic["error_code"]:
                allowed = topic_operations(request.client, topic["name"])
                topic["topic_authorized_operations"] = allowed
    fields: dict[str, Any] = {
        "error_code": ErrorCode.NONE,
        "brokers": [broker_fields(member) for member in living(node)],
        "cluster_id": node.coordination.cluster_id,
        "controller_id": controller_of(node),
        "topics": topics,
    }
    if getattr(request.message, "include_cluster_authorized_operations", False):
        fields["cluster_authorized_operations"] = cluster_operations(request.client)
    return fields, all(_lasts(node, topic) for topic in topics)


def _lasts(node: Node, answer: dict[str, Any]) -> bool:
    served = None if answer["error_code"] else node.hosted.topics.get(answer["name"])
    return served is not None and not served.can_reopen


def living(node: Node) -> list[ClusterMember]:
    """Return the living brokers, which are never none for a client."""
    return list(node.coordination.members.values()) or [
        ClusterMember(node.node_id, node.host, node.port)
    ]


def controller_of(node: Node) -> int:
    """Return the broker that clients ask for topic changes. Any can, so all name the same one."""
    return living(node)[0].broker


def broker_fields(member: ClusterMember) -> dict[str, Any]:
    """Return the fields of a broker in a reply."""
    return {"node_id": member.broker, "host": member.host, "port": member.port}


async def _by_id(
    node: Node, request: Request, name: str | None, topic_id: UUID | None
) -> dict[str, Any]:
    if topic_id is not None and request.version < _BY_ID_VERSION:
        return missing_topic(name or "", ErrorCode.INVALID_REQUEST, topic_id)
    topic = node.hosted.by_id(topic_id)
    if topic is None:
        # before that version the name cannot be null
        unnamed = "" if request.version < _BY_ID_VERSION else None
        return missing_topic(unnamed, ErrorCode.UNKNOWN_TOPIC_ID, topic_id)
    if not request.may_use_topic(topic.name):
        return missing_topic(None, ErrorCode.TOPIC_AUTHORIZATION_FAILED, topic_id)
    return await _named(node, request, topic.name, create=False)


async def _named(node: Node, request: Request, name: str, *, create: bool) -> dict[str, Any]:
    if not request.may_use_topic(name):
        return missing_topic(name, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    topic = node.hosted.topics.get(name)
    create = create and name not in KAFKAS_TOPICS
    if topic is None and create and node.coordination.lease_valid:
        if not request.client.may_use_topic(ApiKey.PRODUCE, name):
            return missing_topic(name, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
        try:
            topic = await node.topic_changes.create(name, node.default_partitions, {})
            _log_created(request, topic)
        except InvalidTopicError:
            return missing_topic(name, ErrorCode.INVALID_TOPIC_EXCEPTION)
        except (TooManyPartitionsError, MissingSubjectError) as error:
            node.topic_changes.auto_create_failures.failed(error, {"topic": name})
            # as if this broker created none: no code says it better
            return missing_topic(name, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        except (StoreFailureError, UnreachableError):
            return missing_topic(name, ErrorCode.LEADER_NOT_AVAILABLE)
        except TopicExistsError:  # created by another request meanwhile
            topic = node.hosted.topics.get(name)
    if topic is None:
        topic = await node.topic_lookup.find(name)
    elif topic.can_reopen:
        await node.topic_changes.reopen_partitions(name)
    if topic is None:
        return missing_topic(name, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    return topic_fields(node, topic)


def _log_created(request: Request, topic: HostedTopic) -> None:
    client, header = request.client, request.header
    _log.info(
        "created topic %s with %d partitions, because %s from %s (client id %r) asked for it and"
        " topics are created on first use (--no-auto-create turns this off)",
        topic.name,
        topic.count,
        client.principal.name,
        client.peer,
        header.client_id or "",
        extra={"topic": topic.name, "principal": client.principal.name, "peer": client.peer},
    )


def missing_topic(
    name: str | None, code: ErrorCode, topic_id: UUID | None = None
) -> dict[str, Any]:
    """Return the answer for a topic that is not described."""
    return {"error_code": code, "name": name, "topic_id": topic_id, "partitions": []}


def topic_fields(node: Node, topic: HostedTopic) -> dict[str, Any]:
    """Return the description of a topic."""
    return {
        "error_code": ErrorCode.NONE,
        "name": topic.name,
        "topic_id": topic.topic_id,
        "is_internal": topic.internal,
        "partitions": [
            _partition(node, index, broker, served=index in topic.partitions)
            for index, broker in enumerate(topic.assignment)
        ],
    }


def _partition(node: Node, index: int, broker: int, *, served: bool) -> dict[str, Any]:
    leader = leader_of(node, broker, served=served)
    replicas = [broker]
    return {
        "error_code": ErrorCode.LEADER_NOT_AVAILABLE if leader == -1 else ErrorCode.NONE,
        "partition_index": index,
        "leader_id": leader,
        "leader_epoch": LEADER_EPOCH,
        "replica_nodes": replicas,
        "isr_nodes": [] if leader == -1 else replicas,
        "offline_replicas": replicas if leader == -1 else [],
    }
