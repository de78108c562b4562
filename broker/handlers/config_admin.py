"""DescribeConfigs, AlterConfigs, IncrementalAlterConfigs, and ListConfigResources.

Rules:

- The configs of a topic or a group can change while it is served. Those of the broker are its
  start options: they are shown by Kafka's names, and changing them is an error.
- A broker config that is the default of a topic config has Kafka's name for it (`BROKER_NAMES`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from functools import partial
from itertools import islice
from typing import Any

from headworks._broker.handlers.config_entry import config_entry
from headworks._broker.handlers.group_configs import (
    GROUP,
    alter_group,
    configured_groups,
    group_entries,
)
from headworks._broker.handlers.leadership import check_changeable
from headworks._broker.handlers.node import Node, Request
from headworks._broker.topics import (
    BROKER_NAMES,
    CONFIGS,
    InvalidConfigError,
    InvalidTopicError,
)
from headworks._kafka.error_codes import ErrorCode, refused
from headworks._kafka.protocol.apis import ApiKey
from headworks._kafka.protocol.messages import Fields
from headworks.errors import RefusedError

_TOPIC, _BROKER, _CLIENT_METRICS = 2, 4, 16
_LIST = int(ApiKey.LIST_CONFIG_RESOURCES)
_SOURCE_TOPIC, _SOURCE_STATIC, _SOURCE_DEFAULT = 1, 4, 5
_SET, _DELETE, _APPEND, _SUBTRACT = 0, 1, 2, 3
_BOOLEAN, _STRING, _LONG = 1, 2, 5
_RESOURCES_PER_TURN = 20
DAMAGE = "headworks.damage"  # of a broker, which no start option sets: what is damaged on its disk
_MAX_DAMAGE_SHOWN = 100


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


async def list_config_resources(node: Node, request: Request) -> Fields:
    """Return the resources that have configs: this broker, the topics, and some groups."""
    types = tuple(getattr(request.message, "resource_types", (_CLIENT_METRICS,)))
    topics = [name for name in node.hosted.topics if request.client.sees_topic(_LIST, name)]
    found = {
        _TOPIC: topics,
        _BROKER: [str(node.node_id)] if request.client.sees_broker(_LIST) else [],
        GROUP: configured_groups(node, request),
    }
    return {
        "error_code": ErrorCode.NONE,
        "config_resources": [
            {"resource_type": kind, "resource_name": name}
            for kind, names in found.items()
            if not types or kind in types
            for name in names
        ],
    }


async def alter_configs(node: Node, request: Request) -> Fields:
    """Replace all own configs of a topic or a group."""

    def replaced(resource: Any, _: Mapping[str, str]) -> dict[str, str]:
        return {config.name: config.value or "" for config in resource.configs}

    return await _alter(node, request, replaced)


async def incremental_alter_configs(node: Node, request: Request) -> Fields:
    """Set or delete single configs of a topic or a group, or change the values of a list."""

    def changed(resource: Any, before: Mapping[str, str]) -> dict[str, str]:
        configs = dict(before)
        for config in resource.configs:
            if config.config_operation == _SET:
                configs[config.name] = config.value or ""
            elif config.config_operation == _DELETE:
                configs.pop(config.name, None)
            else:
                configs[config.name] = _changed_list(node, config, configs)
        return configs

    return await _alter(node, request, changed)


def _changed_list(node: Node, config: Any, configs: Mapping[str, str]) -> str:
    """Return a list config with values appended, or without the subtracted ones."""
    key = CONFIGS.get(config.name)
    if key is None or not key.is_list or config.config_operation not in (_APPEND, _SUBTRACT):
        raise refused(
            ErrorCode.INVALID_CONFIG, f"{config.name} is not a list: it can be set or deleted"
        )
    before = configs.get(key.name, node.hosted.defaults.get(key.name, key.default))
    values = [value for value in before.split(",") if value]
    named = [value.strip() for value in (config.value or "").split(",")]
    if config.config_operation == _SUBTRACT:
        return ",".join(value for value in values if value not in named)
    return ",".join(dict.fromkeys([*values, *named]))


async def _alter(
    node: Node, request: Request, change: Callable[[Any, Mapping[str, str]], dict[str, str]]
) -> Fields:
    responses = []
    for resource in request.message.resources:
        fields = _resource(resource)
        try:
            if resource.resource_type == GROUP:
                await alter_group(node, request, resource.resource_name, partial(change, resource))
            else:
                await _alter_topic(node, request, resource, partial(change, resource))
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


async def _alter_topic(
    node: Node,
    request: Request,
    resource: Any,
    change: Callable[[Mapping[str, str]], dict[str, str]],
) -> None:
    if resource.resource_type != _TOPIC:
        raise refused(
            ErrorCode.INVALID_REQUEST,
            "the configs of topics and groups can be changed; the broker's are its start options",
        )
    topic = await _topic(node, request, resource.resource_name, now=True)
    check_changeable(node, topic.name)
    if request.message.validate_only:
        node.hosted.config(change(topic.configs))
    else:
        await node.topic_changes.configure(topic.name, change)


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
    names = resource.configuration_keys
    return [
        entry
        for entry in await _entries(node, request, resource)
        if names is None or entry["name"] in names
    ]


async def _entries(node: Node, request: Request, resource: Any) -> list[dict[str, Any]]:
    if resource.resource_type == _TOPIC:
        topic = await _topic(node, request, resource.resource_name)
        return [_topic_entry(node, request, topic.configs, name) for name in CONFIGS]
    if resource.resource_type == GROUP:
        return group_entries(node, request, resource.resource_name)
    if resource.resource_type != _BROKER or resource.resource_name not in ("", str(node.node_id)):
        raise refused(
            ErrorCode.INVALID_REQUEST,
            f"there are configs of topics, of groups, and of broker {node.node_id}",
        )
    if not request.may_use_broker():
        raise refused(
            ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
            f"{request.client.principal.name} is not an admin of all topics",
        )
    if not resource.resource_name:  # configs that were set for all brokers: there are none
        return []
    damage = "\n".join(islice(node.hosted.damage(), _MAX_DAMAGE_SHOWN))
    configs = {**node.configs, DAMAGE: damage}
    return [_broker_entry(name, value) for name, value in configs.items()] + [
        _topic_entry(node, request, {}, name) | {"name": shown, "read_only": True}
        for name, shown in BROKER_NAMES.items()
    ]


def _broker_entry(name: str, value: str) -> dict[str, Any]:
    """Describe a start option of the broker."""
    kind = _LONG if value.isdigit() else _BOOLEAN if value in ("true", "false") else _STRING
    return {
        "name": name,
        "value": value,
        "read_only": True,
        "config_source": _SOURCE_STATIC,
        "is_sensitive": False,
        "synonyms": [],
        "config_type": kind,
        "documentation": None,
    }


def _topic_entry(node: Node, request: Request, own: Mapping[str, str], name: str) -> dict[str, Any]:
    key = CONFIGS[name]
    broker_name = BROKER_NAMES.get(name, name)
    values = [(_SOURCE_DEFAULT, broker_name, key.default)]
    if name in node.hosted.defaults:
        values.insert(0, (_SOURCE_STATIC, broker_name, node.hosted.defaults[name]))
    if name in own:
        values.insert(0, (_SOURCE_TOPIC, name, own[name]))
    return config_entry(request, name, values, key.kind, key.meaning)
