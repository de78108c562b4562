"""Limits on what group members may send, and the broker's account of it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from headworks._broker.groups import (
    ClassicGroup,
    GroupCoordinator,
    GroupSettings,
    JoinRequest,
    JoinResponse,
)
from headworks._kafka.protocol import ErrorCode
from tests.broker.topics import FakeTopics

pytestmark = pytest.mark.unit


class Timer:
    def cancel(self) -> None:
        pass

    def when(self) -> float:
        return 0.0


JOIN = JoinRequest(
    member_id="",
    instance_id=None,
    client_id="c",
    host="h",
    session_timeout=10.0,
    rebalance_timeout=10.0,
    protocol_type="consumer",
    protocols=(("range", bytes(100)),),
    needs_id=False,
)


def coordinator(**limits: int) -> GroupCoordinator:
    settings = replace(GroupSettings(), **limits)  # type: ignore[arg-type]
    return GroupCoordinator(lambda: 0.0, lambda *_: Timer(), settings)


def join(groups: GroupCoordinator, name: str, asked: JoinRequest = JOIN) -> JoinResponse | None:
    """What is answered at once, if anything is."""
    answers: list[JoinResponse] = []
    groups.join(name, asked, answers.append, FakeTopics())
    return answers[0] if answers else None


def test_what_members_bring_is_bounded_over_all_groups_and_given_back() -> None:
    groups = coordinator(max_bytes=1000)
    held = 0
    while join(groups, f"g{held}") is None:
        held += 1
    assert 5 <= held <= 9
    refused = join(groups, "one-more")
    assert refused is not None
    assert refused.error == ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert groups.find("one-more") is None
    group = groups.find("g0")
    assert isinstance(group, ClassicGroup)
    for member_id in list(group.members):
        group.leave(0.0, member_id, None)
    groups.changed(group)
    assert join(groups, "one-more") is None


def test_ids_that_were_only_given_out_count_as_members() -> None:
    groups = coordinator(max_members=3)
    codes = []
    for _ in range(5):
        joined = join(groups, "g", replace(JOIN, needs_id=True))
        assert joined is not None
        codes.append(joined.error)
    assert codes == [ErrorCode.MEMBER_ID_REQUIRED] * 3 + [ErrorCode.GROUP_MAX_SIZE_REACHED] * 2


@pytest.mark.parametrize(
    ("name", "protocols", "code"),
    [
        ("n" * 1001, 1, ErrorCode.INVALID_GROUP_ID),
        ("n" * 1000, 1, None),
        ("n", 101, ErrorCode.INCONSISTENT_GROUP_PROTOCOL),
        ("n", 100, None),
    ],
)
def test_names_and_protocols_are_bounded(name: str, protocols: int, code: ErrorCode | None) -> None:
    asked = replace(JOIN, protocols=tuple((f"p{n}", b"") for n in range(protocols)))
    joined = join(coordinator(), name, asked)
    assert (joined and joined.error) == code
