"""The assignment of partitions and groups, the length of a lease, and the owner of a folder."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headworks._broker.coordination.assignment import assign, coordinator_of, load_of
from headworks._broker.coordination.folder import claim_folder, refuse_cluster_folder
from headworks.errors import CorruptError, UsageError

pytestmark = pytest.mark.unit

ids = st.integers(0, 50)
brokers = st.sets(ids, min_size=1, max_size=8)
loads = st.dictionaries(ids, st.integers(0, 1000), max_size=8)


@given(st.integers(1, 60), brokers, loads)
def test_a_new_topic_is_spread_within_one(
    count: int, alive: set[int], load: dict[int, int]
) -> None:
    given_ = assign(count, alive, load)
    assert len(given_) == count
    own = Counter(given_)
    assert set(own) <= alive
    assert max(own.values()) - min(own[broker] for broker in alive) <= 1
    assert given_ == assign(count, sorted(alive, reverse=True), dict(reversed(load.items())))


@given(st.integers(1, 20), brokers, loads)
def test_the_remaining_partitions_go_to_the_least_loaded_broker(
    count: int, alive: set[int], load: dict[int, int]
) -> None:
    own = Counter(assign(count, alive, load))
    more = [load.get(broker, 0) for broker in alive if own[broker] > count // len(alive)]
    less = [load.get(broker, 0) for broker in alive if own[broker] == count // len(alive)]
    if more and less:
        assert max(more) <= min(less)


@given(st.lists(ids, max_size=20).map(tuple), st.integers(0, 20), brokers)
def test_what_is_assigned_stays(present: tuple[int, ...], more: int, alive: set[int]) -> None:
    grown = assign(len(present) + more, alive, {}, present)
    assert grown[: len(present)] == present
    own = Counter(present)
    for broker in grown[len(present) :]:
        assert own[broker] == min(own[other] for other in alive)
        own[broker] += 1


def test_nobody_alive_is_an_error() -> None:
    with pytest.raises(LookupError):
        assign(1, [], {})


def test_many_topics_even_out() -> None:
    topics: list[tuple[int, ...]] = []
    for _ in range(30):
        topics.append(assign(4, [1, 2, 3], load_of(topics)))
    load = load_of(topics)
    assert set(load.values()) == {40}


@given(st.text(max_size=20), brokers, ids)
def test_only_the_groups_of_a_joining_or_leaving_broker_move(
    group: str, alive: set[int], other: int
) -> None:
    before = coordinator_of(group, alive)
    after = coordinator_of(group, alive | {other})
    assert before in alive
    assert after in (before, other)
    assert coordinator_of(group, sorted(alive)) == before


def test_groups_spread() -> None:
    found = Counter(coordinator_of(f"group-{n}", [1, 2, 3]) for n in range(3000))
    assert all(800 < count < 1200 for count in found.values())
    assert coordinator_of("g", []) is None


def test_a_folder_is_of_one_broker_of_one_cluster(tmp_path: Path) -> None:
    refuse_cluster_folder(tmp_path)
    first = claim_folder(tmp_path, "c", 1)
    assert claim_folder(tmp_path, "c", 1) == first
    for cluster, broker in (("c", 2), ("d", 1)):
        with pytest.raises(UsageError, match="belongs to broker 1 of cluster c"):
            claim_folder(tmp_path, cluster, broker)
    with pytest.raises(UsageError, match="--zookeeper"):
        refuse_cluster_folder(tmp_path)
    (tmp_path / "cluster.json").write_text("{")
    with pytest.raises(CorruptError, match=r"cluster\.json"):
        claim_folder(tmp_path, "c", 1)


def test_a_lonely_broker_s_folder_does_not_join_a_cluster(tmp_path: Path) -> None:
    (tmp_path / "coordination.sqlite").touch()
    with pytest.raises(UsageError, match="without ZooKeeper"):
        claim_folder(tmp_path, "c", 1)
