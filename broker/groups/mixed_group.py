"""Members of the classic protocol in a group of the consumer protocol, and groups that change over.

A group changes to the consumer protocol when the first such member joins, and back when the last
one is gone (KIP-848, online migration). In between, the broker assigns for all. A classic member
learns by its heartbeats that it must join again, and JoinGroup answers at once.

Rules: this module only translates. `ConsumerGroup` decides who owns what. A partition keeps its
owner while its group changes over.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from headworks._broker.groups.assignors import OwnedPartition
from headworks._broker.groups.consumer_group import ConsumerGroup
from headworks._broker.groups.consumer_members import (
    NOTHING,
    ClassicSupport,
    ConsumerGroupMember,
    ConsumerGroupTimes,
    MemberState,
    SubscribableTopics,
)
from headworks._broker.groups.embedded_protocol import (
    NamedPartition,
    read_assignment,
    read_subscription,
    write_assignment,
)
from headworks._broker.groups.group import ClassicGroup
from headworks._broker.groups.members import (
    ClassicGroupMember,
    JoinRequest,
    JoinResponse,
    SyncResponse,
)
from headworks._kafka.error_codes import ErrorCode

CONSUMERS = "consumer"  # the protocol type of consumers


def join_mixed(
    group: ConsumerGroup,
    now: float,
    join: JoinRequest,
    topics: SubscribableTopics,
    new_id: Callable[[str], str],
) -> JoinResponse:
    """Handle JoinGroup: the member gets its next partitions with the sync that follows."""
    error = _join_error(group, join)
    if error:
        return JoinResponse(error, join.member_id)
    try:
        subscription = read_subscription(join.protocols[0][1])
    except ValueError:
        return JoinResponse(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, join.member_id)
    member_id = join.member_id or new_id(join.instance_id or join.client_id)
    if not join.member_id and join.needs_id and join.instance_id is None:
        return JoinResponse(ErrorCode.MEMBER_ID_REQUIRED, member_id)
    member = group.members.get(member_id)
    is_new = member is None or member.classic is None
    if member is None or member.classic is None:
        member = group.enter(member_id, join.instance_id)
        member.regex = member.assignor = None
    changed = group.subscribe_by_names(member, subscription.topics) or is_new
    member.client_id, member.host = join.client_id, join.host
    member.rebalance_timeout = join.rebalance_timeout
    member.classic = ClassicSupport(join.session_timeout, join.protocols)
    member.deadline = now + join.session_timeout
    if member.state is not MemberState.UNREVOKED:
        member.act_by = None
    group.subscribe(now, member, topics, changed=changed)
    owned = _with_ids(subscription.owned, topics)
    group.reconcile(now, member, owned, has_answer=True)
    protocol = join.protocols[0][0]
    return JoinResponse(ErrorCode.NONE, member_id, member.epoch, CONSUMERS, protocol)


def sync_mixed(
    group: ConsumerGroup,
    now: float,
    member_id: str,
    instance_id: str | None,
    generation: int,
    topics: SubscribableTopics,
    *,
    protocol_type: str | None,
    protocol: str | None,
) -> SyncResponse:
    """Handle SyncGroup: return the partitions that the member was given when it joined.

    It reads them by the names of their topics. If a topic was recreated since, the name means
    partitions that others may have, so the member must join again.
    """
    error = _member_error(group, member_id, instance_id, generation)
    if error:
        return SyncResponse(error)
    member = group.members[member_id]
    assert member.classic is not None
    chosen = member.classic.protocols[0][0]
    if protocol_type not in (None, CONSUMERS) or protocol not in (None, chosen):
        return SyncResponse(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
    member.deadline = now + member.classic.session_timeout
    group.subscribe(now, member, topics, changed=False)
    if group.epoch > member.epoch and member.state is not MemberState.UNREVOKED:
        _must_rejoin(group, member, now)
        return SyncResponse(ErrorCode.REBALANCE_IN_PROGRESS)
    assignment = write_assignment(group.subscriptions.with_names(member.assigned))
    return SyncResponse(ErrorCode.NONE, assignment, CONSUMERS, chosen)


def heartbeat_mixed(
    group: ConsumerGroup, now: float, member_id: str, instance_id: str | None, generation: int
) -> ErrorCode:
    """Handle Heartbeat: the member must join again to move on to its target."""
    error = _member_error(group, member_id, instance_id, generation)
    if error:
        return error
    member = group.members[member_id]
    assert member.classic is not None
    member.deadline = now + member.classic.session_timeout
    can_get_more = member.state is MemberState.UNRELEASED and not group.is_waiting_for_others(
        member
    )
    if member.epoch < group.epoch or member.state is MemberState.UNREVOKED or can_get_more:
        _must_rejoin(group, member, now)
        return ErrorCode.REBALANCE_IN_PROGRESS
    return ErrorCode.NONE


def leave_mixed(group: ConsumerGroup, member_id: str, instance_id: str | None) -> ErrorCode:
    """Handle LeaveGroup. A tool names a static member by its instance id alone."""
    if instance_id is not None and not member_id:
        member_id = group.instance(instance_id) or ""
    error = group.member_error(member_id, instance_id)
    if not error:
        group.remove(member_id)
    return error


def upgraded(
    group: ClassicGroup, now: float, times: ConsumerGroupTimes, topics: SubscribableTopics
) -> ConsumerGroup:
    """Return a group of the consumer protocol with the members of a classic one.

    ValueError if they are no consumers. `group` must not be used after that.
    """
    if group.members and group.protocol_type != CONSUMERS:
        raise ValueError(f"its members are no consumers: {group.protocol_type!r}")
    read = [
        (member, read_subscription(member.protocols[0][1]), read_assignment(member.assignment))
        for member in group.members.values()
    ]
    made = ConsumerGroup(group.name, times)
    made.epoch = made.target_epoch = group.generation
    for old, subscription, assignment in read:
        member = made.enter(old.member_id, old.instance_id)
        made.subscribe_by_names(member, subscription.topics)
        member.client_id, member.host = old.client_id, old.host
        member.rebalance_timeout, member.deadline = old.rebalance_timeout, old.deadline
        if old.waiting:
            member.deadline = now + old.session_timeout
        member.classic = ClassicSupport(old.session_timeout, old.protocols)
        made.give(member, _with_ids(assignment, topics), group.generation)
    group.unload(ErrorCode.REBALANCE_IN_PROGRESS)
    return made


def downgraded(
    group: ConsumerGroup, now: float, new_id: Callable[[str], str], initial_delay: float
) -> ClassicGroup:
    """Return a classic group with the members, all classic, of `group`; they join again."""
    made = ClassicGroup(group.name, new_id, initial_delay)
    members = [
        ClassicGroupMember(
            member.member_id,
            member.instance_id,
            member.client_id,
            member.host,
            member.classic.session_timeout,
            member.rebalance_timeout,
            member.classic.protocols,
            now + member.classic.session_timeout,
            write_assignment(group.subscriptions.with_names(member.owned)),
        )
        for member in group.members.values()
        if member.classic is not None
    ]
    made.take_over(now, members, group.target_epoch)
    return made


def _join_error(group: ConsumerGroup, join: JoinRequest) -> ErrorCode:
    names = {name for name, _ in join.protocols}
    if join.protocol_type != CONSUMERS or not names:
        return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    for other in group.members.values():
        if other.classic is None or other.member_id == join.member_id:
            continue
        if not names & {name for name, _ in other.classic.protocols}:
            return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    if join.member_id and join.instance_id is not None:
        return group.member_error(join.member_id, join.instance_id)
    return ErrorCode.NONE


def _member_error(
    group: ConsumerGroup, member_id: str, instance_id: str | None, generation: int
) -> ErrorCode:
    error = group.member_error(member_id, instance_id)
    if error:
        return error
    member = group.members[member_id]
    if member.classic is None:
        return ErrorCode.UNKNOWN_MEMBER_ID
    return ErrorCode.NONE if generation == member.epoch else ErrorCode.ILLEGAL_GENERATION


def _must_rejoin(group: ConsumerGroup, member: ConsumerGroupMember, now: float) -> None:
    if member.act_by is None:
        member.act_by = now + member.rebalance_timeout
        group.revision += 1


def _with_ids(
    partitions: Iterable[NamedPartition], topics: SubscribableTopics
) -> frozenset[OwnedPartition]:
    found = [(topics.named(name), index) for name, index in partitions]
    return NOTHING | {(topic.topic_id, index) for topic, index in found if topic is not None}
