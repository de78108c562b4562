"""The group state machine, with the time in our hands."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import count

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from headworks._broker.groups import (
    ClassicGroup,
    GroupCoordinator,
    GroupSettings,
    JoinRequest,
    JoinResponse,
    RebalanceState,
    SyncResponse,
)
from headworks._kafka.protocol import ErrorCode
from tests.broker.topics import FakeTopics

pytestmark = pytest.mark.unit

RANGE = (("range", b"r"), ("roundrobin", b"rr"))


def join_of(member: str = "", **changes: object) -> JoinRequest:
    fields: dict[str, object] = {
        "member_id": member,
        "instance_id": None,
        "client_id": "c",
        "host": "h",
        "session_timeout": 10.0,
        "rebalance_timeout": 30.0,
        "protocol_type": "consumer",
        "protocols": RANGE,
        "needs_id": False,
    }
    return JoinRequest(**(fields | changes))  # type: ignore[arg-type]


@dataclass
class Rig:
    """A group, its clock and everything that was answered."""

    delay: float = 0.0
    now: float = 100.0
    group: ClassicGroup = field(init=False)

    def __post_init__(self) -> None:
        numbers = count(1)
        self.group = ClassicGroup("g", lambda prefix: f"{prefix}-{next(numbers)}", self.delay)

    def join(self, member: str = "", **changes: object) -> list[JoinResponse]:
        answers: list[JoinResponse] = []
        self.group.join(self.now, join_of(member, **changes), answers.append)
        return answers

    def sync(
        self, member: str, generation: int, plan: dict[str, bytes] | None = None, **more: str
    ) -> list[SyncResponse]:
        answers: list[SyncResponse] = []
        instance = more.pop("instance", None)
        self.group.sync(self.now, member, instance, generation, plan or {}, answers.append, **more)
        return answers

    def wait(self, seconds: float) -> None:
        end = self.now + seconds
        while (due := self.group.next_deadline()) is not None and due <= end:
            self.now = max(self.now, due)
            self.group.tick(self.now)
        self.now = end

    def stable_pair(self) -> tuple[str, str]:
        first = self.join()[0].member_id
        waiting = self.join()
        again = self.join(first)
        second = waiting[0].member_id
        generation = again[0].generation
        follower = self.sync(second, generation)
        self.sync(first, generation, {first: b"one", second: b"two"})
        assert follower[0].assignment == b"two"
        assert self.group.state is RebalanceState.STABLE
        return first, second


def test_one_member_joins_syncs_and_is_stable() -> None:
    rig = Rig()
    [joined] = rig.join()
    assert joined.error == 0
    assert joined.leader == joined.member_id
    assert joined.protocol == "range"
    assert [m[0] for m in joined.members] == [joined.member_id]
    [synced] = rig.sync(joined.member_id, joined.generation, {joined.member_id: b"all"})
    assert (synced.error, synced.assignment) == (0, b"all")
    assert rig.group.heartbeat(rig.now, joined.member_id, None, joined.generation) == 0


def test_a_new_member_comes_back_with_the_id_it_is_given() -> None:
    rig = Rig()
    [refused] = rig.join(needs_id=True)
    assert refused.error == ErrorCode.MEMBER_ID_REQUIRED
    [joined] = rig.join(refused.member_id, needs_id=True)
    assert joined.error == 0
    [unknown] = rig.join("made-up", needs_id=True)
    assert unknown.error == ErrorCode.UNKNOWN_MEMBER_ID


def test_an_id_that_is_never_used_does_not_block_the_group() -> None:
    rig = Rig()
    first, second = rig.stable_pair()
    rig.group.leave(rig.now, second, None)
    rig.join(needs_id=True, session_timeout=5.0)
    waiting = rig.join(first)
    assert waiting == []
    rig.wait(6)
    assert waiting[0].error == 0
    assert rig.group.next_deadline() is not None


def test_the_first_rebalance_waits_for_others() -> None:
    rig = Rig(delay=3.0)
    one, two = rig.join(), rig.join()
    assert (one, two) == ([], [])
    rig.wait(3)
    assert one[0].generation == two[0].generation == 1
    assert len(one[0].members) == 2
    assert two[0].members == ()


def test_a_rebalance_tells_the_others_and_gathers_them() -> None:
    rig = Rig()
    first, second = rig.stable_pair()
    generation = rig.group.generation
    third = rig.join()
    assert rig.group.state is RebalanceState.PREPARING
    beat = rig.group.heartbeat(rig.now, first, None, generation)
    assert beat == ErrorCode.REBALANCE_IN_PROGRESS
    one, two = rig.join(first), rig.join(second)
    assert one[0].generation == generation + 1
    assert len(one[0].members) == 3
    assert two[0].error == third[0].error == 0
    assert rig.group.heartbeat(rig.now, first, None, generation + 1) == 0, "completing: calm"
    stale = rig.group.heartbeat(rig.now, first, None, generation)
    assert stale == ErrorCode.ILLEGAL_GENERATION


def test_who_does_not_come_in_time_is_dropped() -> None:
    rig = Rig()
    first, second = rig.stable_pair()
    waiting = rig.join(first)
    rig.group.heartbeat(rig.now, second, None, rig.group.generation)
    for _ in range(4):
        rig.wait(8)
        rig.group.heartbeat(rig.now, second, None, rig.group.generation)
    assert [m[0] for m in waiting[0].members] == [first]
    assert second not in rig.group.members


def test_who_falls_silent_is_dropped_and_the_rest_rebalances() -> None:
    rig = Rig()
    first, _ = rig.stable_pair()
    generation = rig.group.generation
    rig.wait(6)
    assert rig.group.heartbeat(rig.now, first, None, generation) == 0
    rig.wait(6)
    assert list(rig.group.members) == [first]
    assert rig.group.state is RebalanceState.PREPARING
    assert rig.join(first)[0].generation == generation + 1
    rig.wait(1000)
    assert rig.group.idle


def test_a_leader_that_never_brings_the_assignment_is_dropped() -> None:
    rig = Rig()
    first, second = rig.stable_pair()
    rig.join(first)
    joined = rig.join(second)
    synced = rig.sync(second, joined[0].generation)
    for _ in range(7):
        rig.group.heartbeat(rig.now, first, None, rig.group.generation)
        rig.wait(5)
    assert first not in rig.group.members
    assert synced[0].error == ErrorCode.REBALANCE_IN_PROGRESS
    assert rig.join(second)[0].leader == second


def test_leaving_hands_over_at_once() -> None:
    rig = Rig()
    first, second = rig.stable_pair()
    assert rig.group.leave(rig.now, first, None) == 0
    assert rig.group.leave(rig.now, first, None) == ErrorCode.UNKNOWN_MEMBER_ID
    [joined] = rig.join(second)
    assert joined.leader == second
    assert rig.group.leave(rig.now, second, None) == 0
    assert rig.group.state is RebalanceState.EMPTY


def test_a_parked_member_that_leaves_is_answered() -> None:
    rig = Rig()
    first, second = rig.stable_pair()
    parked = rig.join(second, protocols=(("range", b"changed"),))
    rig.group.leave(rig.now, second, None)
    assert parked[0].error == ErrorCode.UNKNOWN_MEMBER_ID
    assert rig.join(first)[0].error == 0


def test_a_follower_that_asks_again_with_nothing_new_does_not_disturb() -> None:
    rig = Rig()
    first, second = rig.stable_pair()
    [again] = rig.join(second)
    assert again.generation == rig.group.generation
    assert rig.group.state is RebalanceState.STABLE
    assert rig.join(first) == [], "the leader does: it may want a new assignment"


def test_static_members_come_back_to_their_place() -> None:
    rig = Rig()
    [joined] = rig.join(instance_id="i1")
    rig.sync(joined.member_id, 1, {joined.member_id: b"mine"}, instance="i1")
    [back] = rig.join(instance_id="i1", may_skip_assignment=True)
    assert back.member_id != joined.member_id
    assert (back.generation, back.skip_assignment, back.leader) == (1, True, back.member_id)
    assert rig.sync(back.member_id, 1, instance="i1")[0].assignment == b"mine"
    fenced = rig.group.heartbeat(rig.now, joined.member_id, "i1", 1)
    assert fenced == ErrorCode.FENCED_INSTANCE_ID
    assert rig.join(joined.member_id, instance_id="i1")[0].error == ErrorCode.FENCED_INSTANCE_ID
    [old_client] = rig.join(instance_id="i1")
    assert old_client.leader != old_client.member_id
    assert old_client.members == ()
    assert rig.group.leave(rig.now, "", "i1") == 0
    assert rig.group.leave(rig.now, "", "i1") == ErrorCode.UNKNOWN_MEMBER_ID


def test_protocols_must_have_something_in_common() -> None:
    rig = Rig()
    rig.join()
    assert rig.join(protocols=(("sticky", b""),))[0].error == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert rig.join(protocol_type="connect")[0].error == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert rig.join(protocols=())[0].error == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    waiting = rig.join(protocols=(("roundrobin", b""),))
    rig.wait(31)
    assert waiting[0].protocol == "roundrobin"


def test_commits_of_members_strangers_and_simple_consumers() -> None:
    rig = Rig()
    assert rig.group.commit_error(rig.now, "", None, -1) == 0
    first, _ = rig.stable_pair()
    generation = rig.group.generation
    assert rig.group.commit_error(rig.now, first, None, generation) == 0
    assert rig.group.commit_error(rig.now, "", None, -1) == ErrorCode.UNKNOWN_MEMBER_ID
    stale = rig.group.commit_error(rig.now, first, None, generation - 1)
    assert stale == ErrorCode.ILLEGAL_GENERATION


def test_sync_checks_generation_protocol_and_state() -> None:
    rig = Rig()
    first, _ = rig.stable_pair()
    now = rig.group.generation
    assert rig.sync("stranger", now)[0].error == ErrorCode.UNKNOWN_MEMBER_ID
    assert rig.sync(first, now - 1)[0].error == ErrorCode.ILLEGAL_GENERATION
    wrong = rig.sync(first, now, protocol="roundrobin")
    assert wrong[0].error == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    rig.join()
    assert rig.sync(first, now)[0].error == ErrorCode.REBALANCE_IN_PROGRESS


class _Timer:
    def __init__(self, when: float) -> None:
        self._when = when
        self.cancelled = False

    def cancel(self) -> None:
        self.cancelled = True

    def when(self) -> float:
        return self._when


def test_the_coordinator_keeps_one_timer_a_group_and_forgets_idle_groups() -> None:
    clock = [0.0]
    due: list[tuple[_Timer, Callable[[str], None], str]] = []

    def call_at(when: float, callback: Callable[[str], None], name: str) -> _Timer:
        timer = _Timer(when)
        due.append((timer, callback, name))
        return timer

    coordinator = GroupCoordinator(
        lambda: clock[0], call_at, GroupSettings(initial_delay=0.0, max_groups=1, max_members=1)
    )
    answers: list[JoinResponse] = []
    topics = FakeTopics()
    coordinator.join("g", join_of(), answers.append, topics)
    coordinator.join("g", join_of(), answers.append, topics)
    coordinator.join("other", join_of(), answers.append, topics)
    coordinator.join("", join_of(), answers.append, topics)
    coordinator.join("other", join_of("m"), answers.append, topics)
    coordinator.join("g", join_of(session_timeout=0.1), answers.append, topics)
    assert [answer.error for answer in answers] == [
        ErrorCode.NONE,
        ErrorCode.GROUP_MAX_SIZE_REACHED,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.INVALID_GROUP_ID,
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.INVALID_SESSION_TIMEOUT,
    ]
    [(timer, callback, name)] = [entry for entry in due if not entry[0].cancelled]
    clock[0] = timer.when()
    callback(name)
    assert coordinator.groups == {}
    coordinator.close()


def test_the_last_member_leaves_while_another_is_only_announced() -> None:
    rig = Rig()
    rig.join()
    rig.wait(2)
    (announced,) = rig.join(needs_id=True)
    member = next(iter(rig.group.members))
    rig.group.leave(rig.now, member, None)
    assert rig.group.state is RebalanceState.EMPTY
    rig.join(announced.member_id)
    rig.wait(2)
    assert rig.group.leader == announced.member_id


class GroupMachine(RuleBasedStateMachine):
    """Members that do anything at any time: no request is left or answered twice."""

    def __init__(self) -> None:
        super().__init__()
        self.rig = Rig(delay=1.0)
        self.known: list[str] = []
        self.joins: list[list[JoinResponse]] = []
        self.syncs: list[list[SyncResponse]] = []

    def pick(self, number: int) -> str:
        return self.known[number % len(self.known)] if self.known else "nobody"

    @rule(needs_id=st.booleans(), static=st.sampled_from([None, None, "i1", "i2"]))
    def new(self, needs_id: bool, static: str | None) -> None:
        self.joins.append(self.rig.join(needs_id=needs_id, instance_id=static))
        self.learn()

    @rule(number=st.integers(0, 20), metadata=st.sampled_from([b"r", b"changed"]))
    def rejoin(self, number: int, metadata: bytes) -> None:
        self.joins.append(self.rig.join(self.pick(number), protocols=(("range", metadata),)))
        self.learn()

    @rule(number=st.integers(0, 20))
    def sync(self, number: int) -> None:
        plan = {member: member.encode() for member in self.rig.group.members}
        self.syncs.append(self.rig.sync(self.pick(number), self.rig.group.generation, plan))

    @rule(number=st.integers(0, 20))
    def beat(self, number: int) -> None:
        group = self.rig.group
        group.heartbeat(self.rig.now, self.pick(number), None, group.generation)

    @rule(number=st.integers(0, 20))
    def leave(self, number: int) -> None:
        self.rig.group.leave(self.rig.now, self.pick(number), None)

    @rule(seconds=st.sampled_from([0.5, 2.0, 11.0, 40.0]))
    def wait(self, seconds: float) -> None:
        self.rig.wait(seconds)
        self.learn()

    def answered(self) -> list[int]:
        return [len(answers) for answers in self.joins] + [len(answers) for answers in self.syncs]

    def learn(self) -> None:
        for answers in self.joins:
            self.known += [a.member_id for a in answers if a.member_id not in self.known]

    @invariant()
    def answered_once_and_consistent(self) -> None:
        assert all(count <= 1 for count in self.answered())
        group = self.rig.group
        parked = sum(m.joining is not None for m in group.members.values())
        assert parked <= sum(not answers for answers in self.joins)
        assert parked == sum(not answers for answers in self.joins)
        assert (group.state is RebalanceState.EMPTY) == (not group.members)
        if group.state is RebalanceState.STABLE:
            assert all(m.syncing is None and m.joining is None for m in group.members.values())
        if group.state in (RebalanceState.STABLE, RebalanceState.COMPLETING):
            assert group.leader in group.members

    def teardown(self) -> None:
        self.rig.wait(10_000)
        assert self.rig.group.idle
        assert all(count == 1 for count in self.answered())


TestGroupMachine = GroupMachine.TestCase
TestGroupMachine.settings = settings(max_examples=100, stateful_step_count=30, deadline=None)


@pytest.mark.parametrize("state", RebalanceState)
def test_states_have_the_names_that_clients_know(state: RebalanceState) -> None:
    assert state.value in {"Empty", "PreparingRebalance", "CompletingRebalance", "Stable"}
