"""The configs of consumer groups, as DescribeConfigs, AlterConfigs, and their siblings have them.

Rules:

- Any broker takes a change. The coordinator of the group follows it from its next heartbeats on.
- A group needs no members and no offsets to have configs.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

from headworks._broker.groups import GROUP_CONFIGS, checked, default_of
from headworks._broker.handlers.config_entry import config_entry
from headworks._broker.handlers.node import Node, Request
from headworks._kafka.error_codes import ErrorCode, refused

GROUP = 32  # the resource type
_SOURCE_GROUP, _SOURCE_DEFAULT = 8, 5
_INT = 3
_MAX_BYTES = 1 << 19  # of all configs; ZooKeeper takes nodes of 1 MB
_BYTES_EACH = 120  # of the configs of a group


def group_entries(node: Node, request: Request, name: str) -> list[dict[str, Any]]:
    """Describe the configs of a group. Raises RefusedError."""
    _check(node, request, name)
    own = node.coordination.group_configs.get(name, {})
    return [_entry(node, request, own, config) for config in GROUP_CONFIGS]


async def alter_group(
    node: Node, request: Request, name: str, change: Callable[[Mapping[str, str]], dict[str, str]]
) -> None:
    """Change the configs of a group, unless the request only validates. Raises RefusedError."""
    _check(node, request, name)

    def valid(before: Mapping[str, str]) -> dict[str, str]:
        after = change(before)
        try:
            checked(after, node.groups.default_times)
        except ValueError as error:
            raise refused(ErrorCode.INVALID_CONFIG, str(error)) from None
        if not before and after:
            _check_room(node, name)
        return after

    if request.message.validate_only:
        valid(node.coordination.group_configs.get(name, {}))
        return
    await node.coordination.change_group_configs(name, valid)
    node.groups.configure(node.coordination.group_configs)


def configured_groups(node: Node, request: Request) -> list[str]:
    """Return the groups with own configs that the client may see."""
    configs = node.coordination.group_configs
    return [name for name in configs if request.client.sees_group(request.header.key, name)]


def _check(node: Node, request: Request, name: str) -> None:
    if not name or node.groups.too_long(name):
        raise refused(
            ErrorCode.INVALID_REQUEST,
            "the group id is empty or too long; there are no configs of all groups",
        )
    if not request.may_use_group(name):
        raise refused(
            ErrorCode.GROUP_AUTHORIZATION_FAILED,
            f"{request.client.principal.name} may not do that with group {name!r}",
        )


def _check_room(node: Node, name: str) -> None:
    names = [*node.coordination.group_configs, name]
    if sum(len(json.dumps(one)) + _BYTES_EACH for one in names) > _MAX_BYTES:
        raise refused(
            ErrorCode.POLICY_VIOLATION,
            "too many groups have configs of their own: delete those of groups that are gone",
        )


def _entry(node: Node, request: Request, own: Mapping[str, str], name: str) -> dict[str, Any]:
    config = GROUP_CONFIGS[name]
    values = [(_SOURCE_DEFAULT, config.broker_name, default_of(name, node.groups.default_times))]
    if name in own:
        values.insert(0, (_SOURCE_GROUP, name, own[name]))
    return config_entry(request, name, values, _INT, config.meaning)
