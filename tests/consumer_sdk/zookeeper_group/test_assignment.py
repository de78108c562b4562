"""The range assignment: laws, and the two examples of the walk through Kafka 0.7's consumer."""

from __future__ import annotations

from collections import Counter
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from consumer_sdk._zookeeper_group.assignment import (
    BrokerPartition,
    StreamId,
    assign,
    assignment_of,
    ranges,
)

pytestmark = pytest.mark.unit

PARTITIONS = st.lists(
    st.builds(BrokerPartition, st.integers(0, 12), st.integers(0, 40)), unique=True, max_size=60
)
TOPICS = st.dictionaries(st.sampled_from(["orders", "views", "clicks"]), PARTITIONS)
MEMBERS = st.dictionaries(
    st.text("abcz-:0123456789", min_size=1, max_size=8),
    st.dictionaries(st.sampled_from(["orders", "views", "clicks"]), st.integers(0, 5)),
    max_size=8,
)


def numbered(count: int) -> list[BrokerPartition]:
    return [BrokerPartition(0, n) for n in range(count)]


def test_five_partitions_two_members_of_one_stream() -> None:
    members = {"c0": {"t": 1}, "c1": {"t": 1}}
    p = numbered(5)
    assert [key[1] for key in assignment_of("c0", {"t": p}, members)] == p[:3]
    assert [key[1] for key in assignment_of("c1", {"t": p}, members)] == p[3:]


def test_five_partitions_two_members_of_four_streams() -> None:
    members = {"c0": {"t": 4}, "c1": {"t": 4}}
    p = numbered(5)
    shares = assignment_of("c0", {"t": p}, members)
    assert shares == {("t", p[0]): 0, ("t", p[1]): 1, ("t", p[2]): 2, ("t", p[3]): 3}
    assert assignment_of("c1", {"t": p}, members) == {("t", p[4]): 0}


def test_partitions_of_one_broker_lie_together() -> None:
    mixed = [BrokerPartition(b, n) for n in range(4) for b in (10, 2)]
    dealt = ranges(mixed, [StreamId("a", 0), StreamId("b", 0)])
    assert {part.broker for part in dealt[StreamId("a", 0)]} == {2}
    assert {part.broker for part in dealt[StreamId("b", 0)]} == {10}


@given(
    PARTITIONS, st.lists(st.builds(StreamId, st.text(max_size=4), st.integers(0, 6)), min_size=1)
)
def test_every_partition_goes_to_one_stream_and_the_streams_are_even(
    partitions: list[BrokerPartition], streams: list[StreamId]
) -> None:
    dealt = ranges(partitions, streams)
    assert Counter(p for part in dealt.values() for p in part) == Counter(partitions)
    assert dealt.keys() == set(streams)
    sizes = [len(part) for part in dealt.values()]
    assert max(sizes) - min(sizes) <= 1
    assert [len(dealt[stream]) for stream in sorted(dealt)] == sorted(sizes, reverse=True)


@given(TOPICS, MEMBERS)
def test_the_shares_of_all_members_are_the_whole(
    topics: dict[str, list[BrokerPartition]], members: dict[str, dict[str, int]]
) -> None:
    wanted = {topic for topic in topics if any(m.get(topic, 0) for m in members.values())}
    owned = Counter(place for member in members for place in assignment_of(member, topics, members))
    assert owned == Counter((topic, p) for topic in wanted for p in topics[topic])
    for member, streams in members.items():
        for (topic, _), number in assignment_of(member, topics, members).items():
            assert number < streams[topic]


@given(TOPICS, MEMBERS, st.randoms())
def test_every_member_computes_the_same_assignment_in_any_order(
    topics: dict[str, list[BrokerPartition]], members: dict[str, dict[str, int]], random: Random
) -> None:
    shuffled = {
        t: random.sample(p, len(p)) for t, p in random.sample(list(topics.items()), len(topics))
    }
    again = dict(random.sample(list(members.items()), len(members)))
    assert assign(topics, members) == assign(shuffled, again)


def test_a_group_without_members_owns_nothing() -> None:
    assert ranges(numbered(3), []) == {}
    assert assign({"t": numbered(3)}, {"c": {"other": 1}}) == {}
