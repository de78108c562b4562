"""Groups that the broker assigns (KIP-848), with the time in our hands."""

from __future__ import annotations

import re
import uuid

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from headworks._broker.groups import (
    ASSIGNORS,
    ClassicGroup,
    ConsumerGroup,
    ConsumerHeartbeat,
    InvalidPatternError,
    JoinResponse,
    TopicPattern,
)
from headworks._broker.groups.assignors import AssignorInput
from headworks._kafka.protocol import ErrorCode
from tests.broker.group_clients import (
    GROUP,
    SESSION_SECONDS,
    Classic,
    Native,
    Rig,
)

pytestmark = pytest.mark.unit


def group_of(rig: Rig) -> ConsumerGroup:
    group = rig.coordinator.find(GROUP)
    assert isinstance(group, ConsumerGroup)
    return group


def settle(rig: Rig, *clients: Native | Classic, rounds: int = 20) -> None:
    for _ in range(rounds):
        for client in clients:
            client.step()
        rig.wait(0.1)


def shares(*clients: Native | Classic) -> list[int]:
    return [len(client.reads) for client in clients]


def test_one_member_gets_everything_with_its_first_heartbeat() -> None:
    rig = Rig(t=4)
    one = Native(rig, "one", frozenset({"t"}))
    one.step()
    assert (one.epoch, len(one.owned)) == (1, 4)
    assert group_of(rig).state.value == "Stable"


def test_a_partition_is_given_only_after_its_owner_gave_it_up() -> None:
    rig = Rig(t=4)
    one, two = (Native(rig, name, frozenset({"t"})) for name in ("one", "two"))
    one.step()
    two.step()
    assert (two.epoch, two.owned) == (2, frozenset())
    assert group_of(rig).state.value == "Reconciling"
    one.step(reconciles=False)  # it was told, and still reads
    two.step()
    assert two.owned == frozenset()
    one.reconcile()
    one.step()
    two.step()
    assert shares(one, two) == [2, 2]
    assert one.epoch == two.epoch == 2
    assert group_of(rig).state.value == "Stable"


def test_a_new_coordinator_waits_for_members_by_the_heartbeats_of_their_group() -> None:
    """A member of the earlier coordinator reads on until it asks the next time."""
    rig = Rig(t=4)
    configs = {"consumer.session.timeout.ms": "60000", "consumer.heartbeat.interval.ms": "30000"}
    rig.coordinator.configure({GROUP: configs})
    rig.coordinator.unload(lambda _: False)
    one = Native(rig, "one", frozenset({"t"}))
    one.step()
    rig.wait(20.0)
    one.step()
    assert one.owned == frozenset()
    rig.wait(11.0)
    one.step()
    assert len(one.owned) == 4


def test_a_member_that_waits_asks_as_often_as_its_group_asks_for() -> None:
    """With the usual wait of half a second, its short session would end before it asks."""
    rig = Rig(t=4)
    configs = {"consumer.session.timeout.ms": "500", "consumer.heartbeat.interval.ms": "100"}
    rig.coordinator.configure({GROUP: configs})
    Native(rig, "one", frozenset({"t"})).step()
    two = ConsumerHeartbeat(
        "two", 0, rebalance_timeout=60.0, topic_names=frozenset({"t"}), owned=frozenset()
    )
    answer = rig.coordinator.consumer_heartbeat(GROUP, two, rig.topics)
    assert (answer.error, answer.interval) == (ErrorCode.NONE, 0.1)


def test_an_answer_that_was_lost_is_given_again() -> None:
    rig = Rig(t=4)
    one = Native(rig, "one", frozenset({"t"}))
    one.step(lost=True)
    one.step()
    assert (one.error, len(one.owned)) == (ErrorCode.NONE, 4)
    two = Native(rig, "two", frozenset({"t"}))
    two.step()
    one.step()
    one.step(lost=True)  # it confirmed, and does not know that it has a new epoch
    one.step()
    assert (one.error, one.epoch, len(one.owned)) == (ErrorCode.NONE, 2, 2)


@pytest.mark.parametrize("lost", [1, 2, 3])
def test_a_partition_that_a_slow_member_may_still_start_to_read_is_not_free(lost: int) -> None:
    """It was given three, reads none yet, and does not hear that it shall have fewer."""
    rig = Rig(a=3)
    slow, other = (Native(rig, name, frozenset("a")) for name in ("slow", "other"))
    slow.step(reconciles=False)
    other.step()
    for _ in range(lost):
        slow.step(lost=True, reconciles=False)
        other.step()
    slow.reconcile()  # what it was given first
    assert not slow.reads & other.reads
    settle(rig, slow, other)
    assert shares(slow, other) == [2, 1]


def test_a_member_that_says_nothing_new_confirms_by_that() -> None:
    """A library says what it reads when that changes. Here it has not begun, and never will."""
    rig = Rig(a=2)
    one = Native(rig, "one", frozenset("a"))
    one.step(reconciles=False)
    one.topics, one.full = frozenset({"none"}), True
    one.step(reconciles=False)
    assert len(group_of(rig).owners) == 2, "it may have missed this answer"
    silent = ConsumerHeartbeat(one.name, one.epoch)
    assert rig.coordinator.consumer_heartbeat(GROUP, silent, rig.topics).error == ErrorCode.NONE
    assert not group_of(rig).owners


def test_a_classic_member_is_not_told_to_read_a_topic_that_was_recreated_since() -> None:
    """It reads by name: the partitions of the new topic, which the other member gets."""
    rig = Rig(b=2)
    native, classic = (
        Native(rig, "n", frozenset("b")),
        Classic(rig, frozenset("b"), cooperative=False),
    )
    settle(rig, native, classic)
    assert shares(native, classic) == [1, 1]
    classic.is_in = False
    classic.step()  # it joins
    rig.topics.set("b", None)
    rig.topics.set("b", 2)
    classic.step()  # it syncs
    classic.step()
    native.step()
    native.step()
    assert not native.reads & classic.reads
    settle(rig, native, classic)
    assert shares(native, classic) == [1, 1]


def test_a_member_of_another_epoch_is_fenced_and_joins_again() -> None:
    rig = Rig(t=4)
    one = Native(rig, "one", frozenset({"t"}))
    one.step()
    one.epoch = 7
    one.step()
    assert one.error == ErrorCode.FENCED_MEMBER_EPOCH
    one.step()
    assert (one.error, len(one.owned)) == (ErrorCode.NONE, 4)
    stranger = ConsumerHeartbeat("nobody", 1)
    refused = rig.coordinator.consumer_heartbeat(GROUP, stranger, rig.topics)
    assert refused.error == ErrorCode.UNKNOWN_MEMBER_ID


def test_a_silent_member_is_removed_and_one_that_does_not_give_up_too() -> None:
    rig = Rig(t=6)
    one, two = (Native(rig, name, frozenset({"t"})) for name in ("one", "two"))
    one.step()
    rig.wait(SESSION_SECONDS - 1)
    two.step()
    rig.wait(2)
    settle(rig, two, rounds=2)
    assert len(two.owned) == 6
    one.expel()
    settle(rig, one, two)
    assert shares(one, two) == [3, 3]
    three = Native(rig, "three", frozenset({"t"}))
    while one.error == ErrorCode.NONE:
        three.step()
        two.step()
        one.step(reconciles=False)  # it lives, and never confirms
        rig.wait(1)
    assert one.error == ErrorCode.UNKNOWN_MEMBER_ID
    settle(rig, two, three)
    assert sum(shares(two, three)) == 6


def test_topics_are_followed() -> None:
    rig = Rig(a=2)
    one = Native(rig, "one", frozenset({"a", "later"}))
    one.step()
    assert rig.names(one.owned) == {("a", 0), ("a", 1)}
    rig.topics.set("later", 1)
    rig.topics.set("a", 3)
    settle(rig, one, rounds=3)
    assert rig.names(one.owned) == {("a", 0), ("a", 1), ("a", 2), ("later", 0)}
    before = one.owned
    rig.topics.set("a", None)
    rig.topics.set("a", 3)
    settle(rig, one, rounds=3)
    assert len(one.owned) == 4
    assert len(one.owned & before) == 1, "a topic that is recreated is another topic"


def test_an_expression_follows_the_topics_and_may_be_given_up() -> None:
    rig = Rig(ab=1, ac=1, b=1)
    one = Native(rig, "one", frozenset())
    one.regex = "a.*"
    one.step()
    assert rig.names(one.owned) == {("ab", 0), ("ac", 0)}
    rig.topics.set("ad", 1)
    settle(rig, one, rounds=3)
    assert ("ad", 0) in rig.names(one.owned)
    one.regex, one.topics, one.full = "", frozenset({"b"}), True
    settle(rig, one, rounds=3)
    assert rig.names(one.owned) == {("b", 0)}


def test_most_members_choose_the_assignor() -> None:
    rig = Rig(a=2, b=2)
    clients = [Native(rig, name, frozenset({"a", "b"})) for name in ("one", "two", "three")]
    for client in clients:
        client.assignor = "range"
    settle(rig, *clients)
    assert group_of(rig).assignor == "range"
    assert shares(*clients) == [2, 0, 2], "the same numbers of both topics, by order of ids"
    clients[0].assignor = clients[1].assignor = "uniform"
    clients[0].full = clients[1].full = True
    settle(rig, *clients)
    assert group_of(rig).assignor == "uniform"
    assert sorted(shares(*clients)) == [1, 1, 2]


def test_a_new_coordinator_lets_the_members_of_the_earlier_one_stop_first() -> None:
    old, new = Rig(t=4), Rig(t=4)
    one, two = (Native(old, name, frozenset({"t"})) for name in ("one", "two"))
    settle(old, one, two)
    new.coordinator.unload(lambda _: True)  # as when brokers come or go
    one.rig = two.rig = new
    one.step()
    assert one.error == ErrorCode.UNKNOWN_MEMBER_ID
    one.step()
    assert (one.error, one.epoch, one.owned) == (ErrorCode.NONE, 1, frozenset())
    assert shares(two) == [2], "it has not heard of it, and reads on"
    new.wait(1.0)  # its next heartbeat
    two.step()
    settle(new, one, two)
    assert shares(one, two) == [2, 2]


def test_a_large_group_is_not_reassigned_for_every_member_that_joins() -> None:
    rig = Rig(t=2000)
    clients = [Native(rig, f"m{number}", frozenset({"t"})) for number in range(20)]
    targets = set()
    for client in clients:
        client.step()
        targets.add(group_of(rig).target_epoch)
    assert len(targets) == 1
    assert group_of(rig).state.value == "Assigning"
    settle(rig, *clients)
    assert shares(*clients) == [100] * 20


def test_a_static_member_comes_back_to_its_partitions() -> None:
    rig = Rig(t=4)
    one, two = (Native(rig, name, frozenset({"t"}), name) for name in ("one", "two"))
    settle(rig, one, two)
    mine, epoch = one.owned, one.epoch
    second = Native(rig, "second", frozenset({"t"}), "one")
    second.step()
    assert second.error == ErrorCode.UNRELEASED_INSTANCE_ID
    one.leave(for_a_while=True)
    settle(rig, two, rounds=3)
    assert shares(two) == [2]
    second.step()
    assert (second.owned, second.epoch) == (mine, epoch)
    one.epoch = epoch
    one.step()
    assert one.error == ErrorCode.FENCED_INSTANCE_ID
    second.leave(for_a_while=True)
    for _ in range(int(SESSION_SECONDS) + 2):
        rig.wait(1)
        two.step()
    assert shares(two) == [4]


@pytest.mark.parametrize("cooperative", [False, True])
def test_a_group_changes_over_while_it_runs(cooperative: bool) -> None:
    rig = Rig(t=6)
    old = [Classic(rig, frozenset({"t"}), cooperative=cooperative) for _ in range(2)]
    settle(rig, *old)
    assert isinstance(rig.coordinator.find(GROUP), ClassicGroup)
    assert shares(*old) == [3, 3]
    new = Native(rig, "new", frozenset({"t"}))
    settle(rig, *old, new)
    assert [member.classic is None for member in group_of(rig).members.values()].count(True) == 1
    assert shares(*old, new) == [2, 2, 2]
    for one in old:
        one.leave()
    settle(rig, new)
    assert shares(new) == [6]
    back = Classic(rig, frozenset({"t"}), cooperative=cooperative)
    settle(rig, back, new)
    assert shares(back, new) == [3, 3]
    new.leave()
    settle(rig, back)
    assert shares(back) == [6]
    assert isinstance(rig.coordinator.find(GROUP), ClassicGroup)


def test_a_group_of_no_consumers_does_not_change_over() -> None:
    from tests.broker.test_groups import join_of

    rig = Rig(t=1)
    answers: list[JoinResponse] = []
    join = join_of(protocol_type="connect", protocols=(("v0", b"x"),))
    rig.coordinator.join(GROUP, join, answers.append, rig.topics)
    beat = ConsumerHeartbeat(
        "one", 0, rebalance_timeout=1.0, topic_names=frozenset({"t"}), owned=frozenset()
    )
    answer = rig.coordinator.consumer_heartbeat(GROUP, beat, rig.topics)
    assert answer.error == ErrorCode.GROUP_ID_NOT_FOUND
    assert "connect" in (answer.message or "")
    assert isinstance(rig.coordinator.find(GROUP), ClassicGroup)


# -- assignors -----------------------------------------------------------------------------------

_topic_ids = [uuid.UUID(int=number) for number in range(4)]
_subscriptions = st.dictionaries(
    st.sampled_from([f"m{number}" for number in range(8)]),
    st.frozensets(st.sampled_from(_topic_ids)),
    min_size=1,
)
_sizes = st.fixed_dictionaries({topic: st.integers(1, 12) for topic in _topic_ids})


@given(_subscriptions, _subscriptions, _sizes, _sizes, st.sampled_from(sorted(ASSIGNORS)))
def test_every_subscribed_partition_has_one_subscribed_member(
    before: dict[str, frozenset[uuid.UUID]],
    after: dict[str, frozenset[uuid.UUID]],
    old_sizes: dict[uuid.UUID, int],
    sizes: dict[uuid.UUID, int],
    assignor: str,
) -> None:
    assign = ASSIGNORS[assignor]
    old = assign(AssignorInput(before, old_sizes, {}, {name: name for name in before}))
    asked = AssignorInput(after, sizes, old, {name: name for name in after})
    found = assign(asked)
    given_away = sorted(one for mine in found.values() for one in mine)
    assert given_away == sorted(asked.partitions())
    for member, mine in found.items():
        assert {topic for topic, _ in mine} <= after[member]
    if assignor == "uniform":
        _is_level(after, found)
        again = assign(AssignorInput(after, sizes, found, asked.order))
        assert again == found, "nothing moves without a reason"


def _is_level(
    subscriptions: dict[str, frozenset[uuid.UUID]],
    found: dict[str, frozenset[tuple[uuid.UUID, int]]],
) -> None:
    """No move of one partition would make the loads more alike."""
    for mine in found.values():
        for topic, _ in mine:
            for other, topics in subscriptions.items():
                assert topic not in topics or len(found[other]) + 1 >= len(mine)


# -- expressions ---------------------------------------------------------------------------------

_atoms = st.sampled_from(
    ["a", "b", ".", "\\.", "[ab]", "[^a]", "[a-c]", "\\d", "\\w", "-", "(?:ab)", "(a|b)", "(b|)"]
)
_expressions = st.recursive(
    st.builds(
        lambda atom, times: atom + times, _atoms, st.sampled_from(["", "*", "+", "?", "{2}"])
    ),
    lambda inner: st.one_of(
        st.builds(lambda *parts: "".join(parts), inner, inner),
        st.builds(lambda one, other: f"({one}|{other})", inner, inner),
        st.builds(lambda one, times: f"({one}){times}", inner, st.sampled_from(["?", "{0,2}"])),
    ),
    max_leaves=6,
)


@given(_expressions, st.lists(st.text("abc.-1", max_size=8), max_size=8))
def test_expressions_match_as_those_of_python(text: str, names: list[str]) -> None:
    pattern = TopicPattern(text)
    for name in names:
        assert pattern.matches(name) == (re.fullmatch(text, name) is not None)


@pytest.mark.parametrize(
    "text", ["(", "a)", "*a", "(?=a)", "\\1", "[a", "a{2,1}", "a{1001}", "((a{50}){50}){50}", "a$b"]
)
def test_expressions_that_cannot_be_taken_are_refused(text: str) -> None:
    with pytest.raises(InvalidPatternError):
        TopicPattern(text)


def test_a_hostile_expression_takes_no_time() -> None:
    assert not TopicPattern("(a+)+(a|a)*b").matches("a" * 249)
    assert TopicPattern("^(?i)SHOP\\..*$|^x".replace("^(?i)", "(?i)^")).matches("shop.orders")
    assert TopicPattern("a{,2}").matches("a{,2}"), "RE2 takes it literally"


# -- the law -------------------------------------------------------------------------------------


class Members(RuleBasedStateMachine):
    """Consumers of both protocols join, lose answers, are slow, die, and leave, as topics change.

    The law: a partition is read by one consumer at most; and when nothing happens any more, every
    partition is read by one that subscribes to it.
    """

    def __init__(self) -> None:
        super().__init__()
        self.rig = Rig(a=3, b=2)
        self.clients: list[Native | Classic] = []
        self.number = 0

    @precondition(lambda self: len(self.clients) < 5)
    @rule(topics=st.sampled_from(["a", "b", "ab"]), assignor=st.sampled_from(["uniform", "range"]))
    def native(self, topics: str, assignor: str) -> None:
        self.number += 1
        client = Native(self.rig, f"n{self.number}", frozenset(topics))
        client.assignor = assignor
        self.clients.append(client)

    @precondition(lambda self: len(self.clients) < 5)
    @rule(topics=st.sampled_from(["a", "b", "ab"]), cooperative=st.booleans())
    def classic(self, topics: str, cooperative: bool) -> None:
        self.clients.append(Classic(self.rig, frozenset(topics), cooperative=cooperative))

    @precondition(lambda self: self.clients)
    @rule(data=st.data(), lost=st.booleans(), reconciles=st.booleans())
    def step(self, data: st.DataObject, lost: bool, reconciles: bool) -> None:
        client = data.draw(st.sampled_from(self.clients))
        if isinstance(client, Native):
            client.step(lost=lost, reconciles=reconciles)
        else:
            client.step()

    @precondition(lambda self: self.clients)
    @rule(data=st.data())
    def reconcile(self, data: st.DataObject) -> None:
        client = data.draw(st.sampled_from(self.clients))
        if isinstance(client, Native):
            client.reconcile()

    @rule(rounds=st.integers(1, 4))
    def all_step(self, rounds: int) -> None:
        for _ in range(rounds):
            for client in self.clients:
                client.step()

    @precondition(lambda self: self.clients)
    @rule(data=st.data(), dies=st.booleans())
    def go(self, data: st.DataObject, dies: bool) -> None:
        client = data.draw(st.sampled_from(self.clients))
        self.clients.remove(client)
        if not dies:
            client.leave()

    @rule(seconds=st.sampled_from([0.5, 3.0, SESSION_SECONDS + 1]))
    def wait(self, seconds: float) -> None:
        """A consumer that was silent for too long stops before the group can give its share."""
        end = self.rig.now + seconds
        while self.rig.now < end:
            self.rig.wait(0.5)
            for client in self.clients:
                if client.knows_that_it_is_out():
                    client.expel()

    @rule(name=st.sampled_from("ab"), count=st.integers(1, 5), again=st.booleans())
    def topic(self, name: str, count: int, again: bool) -> None:
        if again:
            self.rig.topics.set(name, None)
        elif count < self.rig.topics.topics[name].count:
            return
        self.rig.topics.set(name, count)

    @invariant()
    def no_partition_is_read_by_two(self) -> None:
        read = [one for client in self.clients for one in client.reads]
        assert len(read) == len(set(read))

    @invariant()
    def owners_are_what_members_own(self) -> None:
        group = self.rig.coordinator.find(GROUP)
        if isinstance(group, ConsumerGroup):
            owned = [(one, m.member_id) for m in group.members.values() for one in m.owned]
            assert dict(owned) == group.owners
            assert len(owned) == len(group.owners)

    def teardown(self) -> None:
        for _ in range(30):
            for client in self.clients:
                client.step()
            self.wait(1.0)
        wanted = {name for client in self.clients for name in client.topics}
        topics = self.rig.topics.topics
        expected = {(name, index) for name in wanted for index in range(topics[name].count)}
        found = [
            client.owned if isinstance(client, Classic) else self.rig.names(client.owned)
            for client in self.clients
        ]
        assert set[tuple[str, int]]().union(*found) == expected


TestMembers = Members.TestCase
TestMembers.settings = settings(max_examples=100, stateful_step_count=40, deadline=None)
