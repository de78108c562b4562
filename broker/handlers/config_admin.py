"""DescribeConfigs, AlterConfigs, and IncrementalAlterConfigs, of topics and of the broker.

Rules: the configs of a topic can change while it is served. Those of the broker are its start
options: they are shown, and changing them is an error.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from headworks._broker.handlers.node import Node, Request
from headworks._broker.topics import CONFIGS, InvalidConfigError, InvalidTopicError
from headworks._kafka.error_codes import ErrorCode, refused
from headworks._kafka.protocol.messages import Fields
from headworks.errors import RefusedError

__all__ = ["alter_configs", "describe_configs", "incremental_alter_configs"]

_TOPIC, _BROKER = 2, 4
_SOURCE_TOPIC, _SOURCE_STATIC, _SOURCE_DEFAULT = 1, 4, 5
_SET, _DELETE = 0, 1
_RESOURCES_PER_TURN = 20


async def describe_configs(node: Node, request: Request) -> Fields:
    """Return each config with its value, source, type, and documentation.

    A resource that is named twice is described once.
    """
    results = []
    resources = {(r.resource_type, r.resource_name): r for r in request.message.resources}
    for number, resource in enumerate(resources.values(), 1):
        if not number % _RESOURCES_PER_TURN:
            await asyncio.sleep(0)  # let other clients be served
        fields = _resource(resource)
        try:
            fields["configs"] = await _describe(node, request, resource)
        except RefusedError as error:
            fields |= {
                "error_code": ErrorCode(error.code),
                "error_message": str(error),
                "configs": [],
            }
        results.append(fields)
    return {"results": results}


async def alter_configs(node: Node, request: Request) -> Fields:
    """Replace all of a topic's own configs."""

    def replaced(resource: Any, _: Mapping[str, str]) -> dict[str, str]:
        return {config.name: config.value or "" for config in resource.configs}

    return await _alter(node, request, replaced)


async def incremental_alter_configs(node: Node, request: Request) -> Fields:
    """Set or delete single configs of a topic."""

    def changed(resource: Any, before: Mapping[str, str]) -> dict[str, str]:
        configs = dict(before)
        for config in resource.configs:
            if config.config_operation == _SET:
                configs[config.name] = config.value or ""
            elif config.config_operation == _DELETE:
                configs.pop(config.name, None)
            else:
                raise refused(
                    ErrorCode.INVALID_CONFIG,
                    f"{config.name} is not a list: it can be set or deleted",
                )
        return configs

    return await _alter(node, request, changed)


async def _alter(
    node: Node, request: Request, change: Callable[[Any, Mapping[str, str]], dict[str, str]]
) -> Fields:
    responses = []
    for resource in request.message.resources:
        fields = _resource(resource)
        try:
            if resource.resource_type != _TOPIC:
                raise refused(
                    ErrorCode.INVALID_REQUEST,
                    "only a topic's configs can be changed; the broker's are its start options",
                )
            topic = await _topic(node, request, resource.resource_name, now=True)
            if request.message.validate_only:
                node.hosted.config(change(resource, topic.configs))
            else:
                await node.topic_changes.configure(topic.name, partial(change, resource))
        except RefusedError as error:
            fields |= {"error_code": ErrorCode(error.code), "error_message": str(error)}
        except InvalidConfigError as error:
            fields |= {"error_code": ErrorCode.INVALID_CONFIG, "error_message": str(error)}
        except InvalidTopicError as error:  # deleted meanwhile
            fields |= {
                "error_code": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                "error_message": str(error),
            }
        responses.append(fields)
    return {"responses": responses}


def _resource(resource: Any) -> dict[str, Any]:
    return {
        "error_code": ErrorCode.NONE,
        "error_message": None,
        "resource_type": resource.resource_type,
        "resource_name": resource.resource_name,
    }


async def _topic(node: Node, request: Request, name: str, *, now: bool = False) -> Any:
    """Return the topic; with `now`, include a change that another broker may just have made."""
    if not request.may_use_topic(name):
        raise refused(
            ErrorCode.TOPIC_AUTHORIZATION_FAILED,
            f"{request.client.principal.name} may not do that with topic {name!r}",
        )
    if now:
        await node.topic_lookup.refresh(name)
    topic = await node.topic_lookup.find(name)
    if topic is None:
        raise refused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"there is no topic {name!r}")
    return topic


async def _describe(node: Node, request: Request, resource: Any) -> list[dict[str, Any]]:
    own: dict[str, str] = {}
    if resource.resource_type == _TOPIC:
        own = dict((await _topic(node, request, resource.resource_name)).configs)
    elif resource.resource_type != _BROKER or resource.resource_name != str(node.node_id):
        raise refused(
            ErrorCode.INVALID_REQUEST, f"there are configs of topics and of broker {node.node_id}"
        )
    elif not request.may_use_broker():
        raise refused(
            ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
            f"{request.client.principal.name} is not an admin of all topics",
        )
    names = resource.configuration_keys
    return [
        _entry(node, request, own, name, read_only=resource.resource_type == _BROKER)
        for name in CONFIGS
        if names is None or name in names
    ]


def _entry(
    node: Node, request: Request, own: dict[str, str], name: str, *, read_only: bool
) -> dict[str, Any]:
    key = CONFIGS[name]
    values = [(_SOURCE_DEFAULT, key.default)]
    if name in node.hosted.defaults:
        values.insert(0, (_SOURCE_STATIC, node.hosted.defaults[name]))
    if name in own:
        values.insert(0, (_SOURCE_TOPIC, own[name]))
    source, value = values[0]
    return {
        "name": name,
        "value": value,
        "read_only": read_only,
        "config_source": source,
        "is_sensitive": False,
        "synonyms": [{"name": name, "value": each, "source": where} for where, each in values]
        if request.message.include_synonyms
        else [],
        "config_type": key.kind,
        "documentation": key.meaning
        if getattr(request.message, "include_documentation", False)
        else None,
    }
