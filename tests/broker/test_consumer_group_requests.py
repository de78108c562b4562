"""ConsumerGroupHeartbeat and ConsumerGroupDescribe on the wire, and what a restart leaves."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from headworks._kafka.error_codes import ErrorCode
from headworks._kafka.protocol.apis import ApiKey
from tests.broker.clients import eventually
from tests.broker.conftest import start_broker
from tests.broker.test_topic_ids import create
from tests.broker.wire import Wire, kind

pytestmark = pytest.mark.e2e

_VERSION = 1
_NAMED_BY_MEMBER = 9  # version of OffsetCommit and OffsetFetch


def beat(wire: Wire, group: str, member: str, epoch: int, **more: Any) -> Any:
    fields: dict[str, Any] = {"topic_partitions": None, "subscribed_topic_names": None}
    if epoch == 0:
        fields |= {"rebalance_timeout": timedelta(seconds=60), "topic_partitions": ()}
    return wire.ask(
        ApiKey.CONSUMER_GROUP_HEARTBEAT,
        _VERSION,
        group_id=group,
        member_id=member,
        member_epoch=epoch,
        **fields | more,
    )


def partitions(answer: Any) -> list[tuple[uuid.UUID, tuple[int, ...]]]:
    return [(one.topic_id, one.partitions) for one in answer.assignment.topic_partitions]


def assigned(wire: Wire, group: str, member: str, topic: str) -> Any:
    """The answer to a join once the broker assigns, which it does not in its first seconds."""
    answers: list[Any] = []

    def has_partitions() -> bool:
        answers.append(beat(wire, group, member, 0, subscribed_topic_names=(topic,)))
        assert answers[-1].error_code == ErrorCode.NONE
        return bool(partitions(answers[-1]))

    eventually(has_partitions)
    return answers[-1]


def commit_error(wire: Wire, version: int, group: str, member: str, epoch: int, topic: str) -> int:
    part = kind(ApiKey.OFFSET_COMMIT, version, "request", "OffsetCommitRequestPartition")
    of = kind(ApiKey.OFFSET_COMMIT, version, "request", "OffsetCommitRequestTopic")
    place = part(partition_index=0, committed_offset=7, committed_metadata="")
    [found] = wire.ask(
        ApiKey.OFFSET_COMMIT,
        version,
        group_id=group,
        generation_id_or_member_epoch=epoch,
        member_id=member,
        topics=(of(name=topic, partitions=(place,)),),
    ).topics
    return int(found.partitions[0].error_code)


def fetch_error(wire: Wire, group: str, member: str, epoch: int) -> int:
    asked = kind(ApiKey.OFFSET_FETCH, _NAMED_BY_MEMBER, "request", "OffsetFetchRequestGroup")
    [found] = wire.ask(
        ApiKey.OFFSET_FETCH,
        _NAMED_BY_MEMBER,
        groups=(asked(group_id=group, member_id=member, member_epoch=epoch, topics=None),),
    ).groups
    return int(found.error_code)


def test_a_member_joins_commits_and_leaves(address: str, new_name: Callable[[], str]) -> None:
    name, group = new_name(), new_name()
    with Wire(address) as wire:
        topic_id = create(wire, name)
        joined = assigned(wire, group, "one", name)
        epoch = joined.member_epoch
        assert partitions(joined) == [(topic_id, (0,))]
        assert joined.heartbeat_interval == timedelta(seconds=3)
        later = beat(wire, group, "one", epoch)
        assert (later.error_code, later.assignment) == (ErrorCode.NONE, None)
        for member, at, error in (
            ("one", epoch, ErrorCode.NONE),
            ("one", 7, ErrorCode.STALE_MEMBER_EPOCH),
            ("two", epoch, ErrorCode.UNKNOWN_MEMBER_ID),
        ):
            assert commit_error(wire, _NAMED_BY_MEMBER, group, member, at, name) == error
            assert fetch_error(wire, group, member, at) == error
        old = commit_error(wire, _NAMED_BY_MEMBER - 1, group, "one", 7, name)
        assert old == ErrorCode.UNSUPPORTED_VERSION
        [described] = wire.ask(
            ApiKey.CONSUMER_GROUP_DESCRIBE,
            _VERSION,
            group_ids=(group,),
            include_authorized_operations=True,
        ).groups
        assert (described.group_state, described.group_epoch) == ("Stable", epoch)
        [member] = described.members
        assert (member.subscribed_topic_names, member.member_type) == ((name,), 1)
        [owned] = member.assignment.topic_partitions
        assert (owned.topic_name, owned.partitions) == (name, (0,))
        [classic] = wire.ask(
            ApiKey.DESCRIBE_GROUPS, 6, groups=(group,), include_authorized_operations=False
        ).groups
        assert classic.error_code == ErrorCode.GROUP_ID_NOT_FOUND
        assert beat(wire, group, "one", -1).member_epoch == -1
        assert beat(wire, group, "one", epoch).error_code == ErrorCode.UNKNOWN_MEMBER_ID


@pytest.mark.parametrize(
    ("member", "epoch", "more", "error"),
    [
        ("", 0, {"subscribed_topic_names": ("t",)}, ErrorCode.INVALID_REQUEST),
        ("m", 0, {}, ErrorCode.INVALID_REQUEST),
        ("m", -3, {}, ErrorCode.INVALID_REQUEST),
        ("m", -2, {}, ErrorCode.INVALID_REQUEST),
        ("m", 1, {}, ErrorCode.UNKNOWN_MEMBER_ID),
        ("m", 1, {"instance_id": ""}, ErrorCode.INVALID_REQUEST),
        (
            "m",
            0,
            {"subscribed_topic_names": ("t",), "rebalance_timeout": timedelta(milliseconds=-1)},
            ErrorCode.INVALID_REQUEST,
        ),
        (
            "m",
            0,
            {"subscribed_topic_names": ("t",), "server_assignor": "mine"},
            ErrorCode.UNSUPPORTED_ASSIGNOR,
        ),
        ("m", 0, {"subscribed_topic_regex": "("}, ErrorCode.INVALID_REGULAR_EXPRESSION),
    ],
)
def test_requests_that_cannot_be_right_are_refused(
    address: str,
    new_name: Callable[[], str],
    member: str,
    epoch: int,
    more: dict[str, Any],
    error: ErrorCode,
) -> None:
    group = new_name()
    with Wire(address) as wire:
        refused = beat(wire, group, member, epoch, **more)
        assert refused.error_code == error
        assert refused.error_message
        listed = wire.ask(ApiKey.LIST_GROUPS, 5, states_filter=(), types_filter=()).groups
        assert group not in {one.group_id for one in listed}


def test_a_member_joins_again_after_a_restart_and_its_offsets_are_kept(tmp_path: Path) -> None:
    broker = start_broker(tmp_path)
    with Wire(broker.address) as wire:
        create(wire, "t")
        epoch = assigned(wire, "g", "one", "t").member_epoch
        assert commit_error(wire, _NAMED_BY_MEMBER, "g", "one", epoch, "t") == ErrorCode.NONE
    broker.stop()

    def waits_at_first() -> bool:
        """Another member of before may still read, unless a start took longer than it may."""
        with start_broker(tmp_path) as broker, Wire(broker.address) as wire:
            assert beat(wire, "g", "one", epoch).error_code == ErrorCode.UNKNOWN_MEMBER_ID
            late = commit_error(wire, _NAMED_BY_MEMBER, "g", "one", epoch, "t")
            assert late == ErrorCode.UNKNOWN_MEMBER_ID
            again = beat(wire, "g", "one", 0, subscribed_topic_names=("t",))
            assert again.error_code == ErrorCode.NONE
            if partitions(again):
                return False
            assert again.member_epoch == 1
            assert len(partitions(assigned(wire, "g", "one", "t"))) == 1
            return True

    eventually(waits_at_first)
