"""Metadata: brokers, topics, partitions, and leaders. It creates topics on demand.

Rules:

- A reply without errors is cached until a topic or a broker changes.
- A partition that could not be opened is tried again when a client names its topic.
- A missing topic is created only if the client and the broker allow it, and if the client may
  produce to it. Producers ask for that, and consumers do not.
- A listing omits the topics that the client may not see.
"""

from __future__ import annotations

import asyncio
from typing import Any

from headworks._broker.coordination import ClusterMember, StoreFailureError, TopicExistsError
from headworks._broker.handlers.leadership import leader_of
from headworks._broker.handlers.node import Node, Request
from headworks._broker.log.partition import LEADER_EPOCH
from headworks._broker.topics import HostedTopic, InvalidTopicError, TooManyPartitionsError
from headworks._kafka.error_codes import ErrorCode
from headworks._kafka.protocol.apis import APIS, ApiKey
from headworks._kafka.protocol.messages import Fields, encode

__all__ = ["broker_fields", "controller_of", "living", "metadata"]

_TOPICS_PER_TURN = 200


async def metadata(node: Node, request: Request) -> bytes:
    """Answer for the named topics, or for all."""
    hosted = node.hosted
    asked = request.message.topics
    # each once, however often it is named: a topic's answer may be 10,000 times as long as its name
    names = None if asked is None else tuple(dict.fromkeys(topic.name for topic in asked))
    question = (request.version, names, request.client.visibility)
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
    node: Node, request: Request, names: tuple[str | None, ...] | None
) -> tuple[Fields, bool]:
    """Return the fields of the reply, and whether they stay valid until the topics change."""
    if request.version == 0 and not names:
        names = None  # version 0 cannot say null: an empty list means all
    create = node.auto_create_topics and getattr(request.message, "allow_auto_topic_creation", True)
    if names is None:
        topics = [
            _topic(node, topic)
            for name, topic in node.hosted.topics.items()
            if request.client.sees_topic(request.header.key, name)
        ]
    else:
        topics = []
        for number, name in enumerate(names):
            if number % _TOPICS_PER_TURN == _TOPICS_PER_TURN - 1:
                await asyncio.sleep(0)  # let other clients be served
            topics.append(await _named(node, request, name, create=create))
    fields = {
        "brokers": [broker_fields(member) for member in living(node)],
        "cluster_id": node.coordination.cluster_id,
        "controller_id": controller_of(node),
        "topics": topics,
    }
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


async def _named(node: Node, request: Request, name: str | None, *, create: bool) -> dict[str, Any]:
    if name is None:  # asked by topic id: there are none
        # the name can be null from version 12 on
        return _missing(None if request.version >= 12 else "", ErrorCode.UNKNOWN_TOPIC_ID)
    if not request.may_use_topic(name):
        return _missing(name, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    topic = node.hosted.topics.get(name)
    if topic is None and create and node.coordination.lease_valid:
        if not request.client.may_use_topic(ApiKey.PRODUCE, name):
            return _missing(name, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
        try:
            topic = await node.topic_changes.create(name, node.default_partitions, {})
        except InvalidTopicError:
            return _missing(name, ErrorCode.INVALID_TOPIC_EXCEPTION)
        except TooManyPartitionsError as error:
            node.topic_changes.auto_create_failures.failed(error, {"topic": name})
            # as if this broker created none: no code says it better
            return _missing(name, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        except StoreFailureError:
            return _missing(name, ErrorCode.LEADER_NOT_AVAILABLE)
        except TopicExistsError:  # created by another request meanwhile
            topic = node.hosted.topics.get(name)
    if topic is None:
        topic = await node.topic_lookup.find(name)
    elif topic.can_reopen:
        await node.topic_changes.reopen_partitions(name)
    if topic is None:
        return _missing(name, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    return _topic(node, topic)


def _missing(name: str | None, code: ErrorCode) -> dict[str, Any]:
    return {"error_code": code, "name": name, "topic_id": None, "partitions": []}


def _topic(node: Node, topic: HostedTopic) -> dict[str, Any]:
    return {
        "error_code": ErrorCode.NONE,
        "name": topic.name,
        "topic_id": None,
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
