"""Which cluster something was left for: by its id, or else by an address in common."""

from __future__ import annotations

import pytest

from headworks._kafka.cluster_identity import (
    PACKED_BYTES,
    ClusterIdentity,
    reached_by,
    unpacked,
)

pytestmark = pytest.mark.unit


def cluster(name: str | None, *addresses: str) -> ClusterIdentity:
    return ClusterIdentity(name, frozenset(addresses))


def test_addresses_are_compared_as_clients_reach_them() -> None:
    text = " Kafka-1 , PLAINTEXT://kafka-2:9093,[::1],[::1]:9094,"
    assert reached_by(text) == cluster(
        None, "kafka-1:9092", "kafka-2:9093", "[::1]:9092", "[::1]:9094"
    )


@pytest.mark.parametrize(
    ("left", "is_taken"),
    [
        (None, True),  # of an earlier release
        (cluster("mine", "other:9092"), True),  # another list of addresses
        (cluster("other", "a:9092"), False),  # the address belonged to another cluster then
        (cluster(None, "b:9092", "z:9092"), True),  # it never reached its cluster
        (cluster(None, "z:9092"), False),
    ],
)
def test_ids_decide_and_addresses_without_them(
    left: ClusterIdentity | None, is_taken: bool
) -> None:
    assert cluster("mine", "a:9092", "b:9092").takes(left) is is_taken


def test_a_packed_cluster_has_one_size_and_keeps_the_id() -> None:
    for count in (0, 1, 5, 100):
        given = cluster("x" * 22, *(f"broker-{n}.internal:9092" for n in range(count)))
        packed = given.packed()
        assert len(packed) == PACKED_BYTES
        found = unpacked(packed)
        assert found is not None
        assert found.id == given.id
        assert found.addresses <= given.addresses
        assert found == given or count == 100
    assert unpacked(cluster(None, "a:9092").packed()) == cluster(None, "a:9092")


def test_what_was_not_written_to_its_end_names_no_cluster() -> None:
    before, after = cluster(None, "a:9092").packed(), cluster("x" * 22, "a:9092").packed()
    assert unpacked(bytes(PACKED_BYTES)) is None
    assert unpacked(after[:20] + before[20:]) is None
