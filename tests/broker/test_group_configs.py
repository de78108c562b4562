"""The configs of a group: set and shown on the wire, used by its members, and kept."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from headworks._kafka.error_codes import ErrorCode
from headworks._kafka.protocol.apis import ApiKey
from tests.broker.clients import eventually
from tests.broker.conftest import start_broker
from tests.broker.test_consumer_group_requests import beat
from tests.broker.test_topic_ids import create
from tests.broker.wire import Wire, kind

pytestmark = pytest.mark.e2e

_GROUP, SET, _DELETE, _APPEND = 32, 0, 1, 2
SOURCE_GROUP, SOURCE_DEFAULT = 8, 5
SESSION, HEARTBEAT = "consumer.session.timeout.ms", "consumer.heartbeat.interval.ms"


def alter(
    wire: Wire, group: str, *changes: tuple[str, str | None, int], validate_only: bool = False
) -> Any:
    """Change configs one by one; the answer."""
    of = kind(ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, "request", "AlterConfigsResource")
    one = kind(ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, "request", "AlterableConfig")
    configs = tuple(
        one(name=name, value=value, config_operation=operation)
        for name, value, operation in changes
    )
    [found] = wire.ask(
        ApiKey.INCREMENTAL_ALTER_CONFIGS,
        1,
        resources=(of(resource_type=_GROUP, resource_name=group, configs=configs),),
        validate_only=validate_only,
    ).responses
    return found


def described(wire: Wire, group: str) -> dict[str, tuple[str, int]]:
    """The value and the source of each config of a group."""
    of = kind(ApiKey.DESCRIBE_CONFIGS, 4, "request", "DescribeConfigsResource")
    [found] = wire.ask(
        ApiKey.DESCRIBE_CONFIGS,
        4,
        resources=(of(resource_type=_GROUP, resource_name=group, configuration_keys=None),),
        include_synonyms=True,
        include_documentation=True,
    ).results
    assert found.error_code == ErrorCode.NONE
    return {one.name: (one.value, one.config_source) for one in found.configs}


def configured(wire: Wire) -> list[str]:
    """The groups that ListConfigResources names."""
    found = wire.ask(ApiKey.LIST_CONFIG_RESOURCES, 1, resource_types=(_GROUP,)).config_resources
    return [one.resource_name for one in found]


def interval(wire: Wire, group: str, member: str, topic: str) -> timedelta:
    """The interval of heartbeats that a member gets when it joins; Stable or not."""
    answer = beat(wire, group, member, 0, subscribed_topic_names=(topic,))
    assert answer.error_code == ErrorCode.NONE
    found: timedelta = answer.heartbeat_interval
    return found


def test_the_times_of_a_group_are_set_shown_used_and_deleted(
    address: str, new_name: Callable[[], str]
) -> None:
    topic, group = new_name(), new_name()
    default = {SESSION: ("45000", SOURCE_DEFAULT), HEARTBEAT: ("3000", SOURCE_DEFAULT)}
    with Wire(address) as wire:
        create(wire, topic)
        assert described(wire, group) == default
        changes = ((SESSION, "700", SET), (HEARTBEAT, "200", SET))
        assert alter(wire, group, *changes, validate_only=True).error_code == ErrorCode.NONE
        assert described(wire, group) == default
        assert alter(wire, group, *changes).error_code == ErrorCode.NONE
        own = {SESSION: ("700", SOURCE_GROUP), HEARTBEAT: ("200", SOURCE_GROUP)}
        assert described(wire, group) == own
        assert group in configured(wire)

        fields = {"group_ids": (group,), "include_authorized_operations": False}

        def has_members() -> bool:
            [found] = wire.ask(ApiKey.CONSUMER_GROUP_DESCRIBE, 1, **fields).groups
            return bool(found.members)

        def joins() -> bool:
            """Not if this machine stands still for as long as the session lasts."""
            return (
                interval(wire, group, "m", topic) == timedelta(milliseconds=200) and has_members()
            )

        eventually(joins)
        # the member is silent: its session ends after 0.7 s, and not after 45 s
        eventually(lambda: not has_members())

        eventually(lambda: interval(wire, group, "n", topic) == timedelta(milliseconds=200))
        alter(wire, group, (SESSION, None, _DELETE), (HEARTBEAT, None, _DELETE))
        assert described(wire, group) == default
        assert group not in configured(wire)
        assert interval(wire, group, "n", topic) == timedelta(seconds=3)


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ([(SESSION, "499", SET)], ErrorCode.INVALID_CONFIG),
        ([(SESSION, "soon", SET)], ErrorCode.INVALID_CONFIG),
        ([(SESSION, None, SET)], ErrorCode.INVALID_CONFIG),
        ([(SESSION, "3000", SET)], ErrorCode.INVALID_CONFIG),  # as long as a heartbeat
        ([(HEARTBEAT, "9" * 5000, SET)], ErrorCode.INVALID_CONFIG),
        ([(SESSION, "9000", _APPEND)], ErrorCode.INVALID_CONFIG),
        ([("share.session.timeout.ms", "9000", SET)], ErrorCode.INVALID_CONFIG),
    ],
)
def test_times_that_cannot_be_are_refused(
    address: str,
    new_name: Callable[[], str],
    changes: list[tuple[str, str | None, int]],
    error: ErrorCode,
) -> None:
    group = new_name()
    with Wire(address) as wire:
        found = alter(wire, group, *changes)
        assert found.error_code == error
        assert changes[0][0] in found.error_message
        assert group not in configured(wire)
        assert alter(wire, "", *changes).error_code == ErrorCode.INVALID_REQUEST


def test_a_restart_keeps_the_configs_of_groups(tmp_path: Path) -> None:
    with start_broker(tmp_path) as running, Wire(running.address) as wire:
        assert alter(wire, "g", (SESSION, "60000", SET)).error_code == ErrorCode.NONE
    with start_broker(tmp_path) as running, Wire(running.address) as wire:
        assert described(wire, "g")[SESSION] == ("60000", SOURCE_GROUP)
