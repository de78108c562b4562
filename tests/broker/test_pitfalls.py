"""The needs of clients, and the pitfalls of other brokers: each with its test.

SERVED holds the versions of each API that clients of today ask for; PITFALLS names, for each
mistake that others have made and their users have met, the tests here that would notice it.
A test that is renamed or removed must be replaced in the list.
"""

from __future__ import annotations

import ast
import importlib.util
import struct
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from headworks._kafka.protocol import APIS, ErrorCode
from headworks._kafka.protocol.apis import SASL_APIS, ApiKey
from headworks._kafka.protocol.message_reader import fields_of
from headworks._kafka.records import check_batch
from tests.broker.build import batch
from tests.broker.clients import DEADLINE
from tests.broker.wire import Wire, fetch, fetched, kind, produce, produced

pytestmark = pytest.mark.e2e

HERE = Path(__file__).parent

# key: (lowest, highest) version that must be advertised
SERVED = {
    # produce, consume, groups, idempotence
    ApiKey.API_VERSIONS: (0, 3),
    ApiKey.METADATA: (0, 13),
    ApiKey.PRODUCE: (0, 13),
    ApiKey.FETCH: (4, 18),
    ApiKey.LIST_OFFSETS: (0, 11),
    ApiKey.INIT_PRODUCER_ID: (0, 4),
    ApiKey.FIND_COORDINATOR: (0, 4),
    ApiKey.JOIN_GROUP: (0, 9),
    ApiKey.SYNC_GROUP: (0, 5),
    ApiKey.HEARTBEAT: (0, 4),
    ApiKey.LEAVE_GROUP: (0, 5),
    ApiKey.OFFSET_COMMIT: (1, 10),
    ApiKey.OFFSET_FETCH: (1, 10),
    ApiKey.CREATE_TOPICS: (0, 7),
    ApiKey.DELETE_TOPICS: (0, 6),
    ApiKey.DESCRIBE_CONFIGS: (0, 4),
    ApiKey.DESCRIBE_GROUPS: (0, 6),
    ApiKey.LIST_GROUPS: (0, 5),
    # groups that the broker assigns
    ApiKey.CONSUMER_GROUP_HEARTBEAT: (0, 1),
    ApiKey.CONSUMER_GROUP_DESCRIBE: (0, 1),
    # administration, better failure behaviour
    ApiKey.CREATE_PARTITIONS: (0, 3),
    ApiKey.INCREMENTAL_ALTER_CONFIGS: (0, 1),
    ApiKey.ALTER_CONFIGS: (0, 2),
    ApiKey.DELETE_RECORDS: (0, 2),
    ApiKey.DELETE_GROUPS: (0, 2),
    ApiKey.OFFSET_DELETE: (0, 0),
    ApiKey.OFFSET_FOR_LEADER_EPOCH: (2, 4),
    ApiKey.DESCRIBE_CLUSTER: (0, 1),
    ApiKey.DESCRIBE_LOG_DIRS: (1, 4),
    # what user interfaces ask for
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: (0, 1),
    ApiKey.LIST_PARTITION_REASSIGNMENTS: (0, 0),
    ApiKey.LIST_CONFIG_RESOURCES: (0, 1),
    ApiKey.DESCRIBE_TOPIC_PARTITIONS: (0, 0),
}

PITFALLS = {
    "1 ApiVersions is answered in the oldest layout, with the list": (
        "test_wire.py::test_versions_are_listed",
        "test_wire.py::test_a_version_of_versions_that_is_too_high_is_answered_in_the_oldest_layout",
    ),
    "2 without Produce 0 older clients silently stop compressing": (
        "test_wire.py::test_versions_are_listed",
        "test_wire.py::test_old_produce_is_answered_in_its_own_layout",
        "test_clients.py::test_batches_keep_the_codec_they_came_with",
    ),
    "3 only what works in every version is advertised, headers per key and version": (
        "test_pitfalls.py::test_every_advertised_version_is_answered_in_its_own_layout",
        "../headworks/kafka/test_protocol.py::test_every_advertised_version_has_a_schema_of_the_same_shape",
        "../headworks/kafka/test_protocol.py::test_requests_read_as_kio_wrote_them",
        "test_oldest_versions.py::test_the_oldest_versions_that_have_no_schema_any_more",
    ),
    "4 a fetch is parked: not answered empty at once, not for ever, not after its client": (
        "test_wire.py::test_an_empty_fetch_is_not_answered_before_its_time",
        "test_wire.py::test_a_parked_fetch_wakes_on_an_append",
        "test_wire.py::test_a_fetch_waits_for_as_many_bytes_as_it_asks",
        "test_wire.py::test_a_client_that_goes_while_parked_leaves_nothing_behind",
        "test_wire.py::test_an_idle_broker_with_parked_consumers_uses_no_cpu",
    ),
    "5 replies keep the order of requests": (
        "test_wire.py::test_many_requests_in_one_piece_are_answered_in_order",
        "test_wire.py::test_a_parked_fetch_delays_later_replies_of_its_connection",
    ),
    "6 the first batch comes however small the limit": (
        "test_wire.py::test_the_first_batch_comes_whole_however_little_is_asked",
        "test_log.py::test_the_first_batch_comes_whole_however_small_the_limit",
    ),
    "7 fetch sessions are declined completely": ("test_wire.py::test_fetch_sessions_are_declined",),
    "8 placement lies outside the CRC, append time inside": (
        "../headworks/kafka/test_records.py::test_placement_lies_outside_the_crc",
        "../headworks/kafka/test_records.py::test_append_time_changes_what_readers_see_and_keeps_the_crc_true",
        "test_wire.py::test_stored_batches_equal_sent_batches_except_for_their_offsets",
        "test_admin_clients.py::test_a_topics_message_limit_and_append_time_are_obeyed",
    ),
    "9 offsets advance by the last delta, and batches may be empty": (
        "test_log.py::test_offsets_follow_each_other_over_segments_and_reads_find_every_batch",
        "test_compaction.py::test_who_reads_to_the_end_arrives_there_even_if_the_last_record_went",
        "test_compaction.py::test_offsets_do_not_go_back_when_the_active_segment_is_lost",
    ),
    "10 one leader epoch everywhere": (
        "test_pitfalls.py::test_the_leader_epoch_is_the_same_everywhere",
        "test_wire.py::test_fetching_outside_the_log_says_so_with_its_ends",
    ),
    "11 idempotence: repeats, gaps, wrapping, restarts": (
        "test_wire.py::test_idempotence_over_the_wire",
        "test_producers.py::test_the_last_five_batches_are_known_again_and_no_others",
        "test_log.py::test_idempotence_survives_a_restart_with_and_without_snapshots",
        "test_log.py::test_sequences_wrap",
        "test_durability.py::test_a_producer_goes_on_over_a_restart",
    ),
    "12 what cannot be kept is refused by name, never ignored": (
        "test_wire.py::test_a_batch_that_is_wrong_is_refused_by_name",
        "test_wire.py::test_acks_that_do_not_exist_are_refused",
    ),
    "13 groups: ids first, delays, time-outs, leavers, strangers' commits": (
        "test_groups.py::test_a_new_member_comes_back_with_the_id_it_is_given",
        "test_groups.py::test_the_first_rebalance_waits_for_others",
        "test_groups.py::test_a_rebalance_tells_the_others_and_gathers_them",
        "test_groups.py::test_who_does_not_come_in_time_is_dropped",
        "test_groups.py::test_a_leader_that_never_brings_the_assignment_is_dropped",
        "test_groups.py::test_commits_of_members_strangers_and_simple_consumers",
        "test_pitfalls.py::test_the_oldest_join_rebalances_within_its_session",
        "test_group_clients.py::test_a_member_that_dies_is_replaced_after_its_session",
    ),
    "14 clients are told an address that they reach": (
        "test_pitfalls.py::test_clients_get_the_address_that_they_connected_to",
        "test_durability.py::test_addresses_that_it_does_not_listen_on",
    ),
    "15 an unknown topic is an error, and made only if that is asked for": (
        "test_wire.py::test_metadata",
        "test_clients.py::test_producers_create_topics_and_consumers_do_not",
    ),
    "16 the throttle time is there, and zero": (
        "test_pitfalls.py::test_every_advertised_version_is_answered_in_its_own_layout",
    ),
    "17 a topic is gone from the metadata when its deletion is answered": (
        "test_admin_clients.py::test_topics_come_and_go",
        "test_admin_clients.py::test_kafka_python_administers",
    ),
    "18 offsets by place and by time": (
        "test_wire.py::test_offsets_are_found_by_place_and_time",
        "test_log.py::test_search_by_time_agrees_with_looking_at_every_record",
    ),
    "19 acks=0 is never answered, and an error closes the connection": (
        "test_wire.py::test_acks_0_is_never_answered",
        "test_wire.py::test_an_error_at_acks_0_closes_the_connection",
    ),
}


@pytest.mark.parametrize("key", SERVED)
def test_what_clients_ask_for_is_served(key: ApiKey) -> None:
    assert (APIS[key].minimum, APIS[key].maximum) == SERVED[key]


@pytest.mark.parametrize("pitfall", PITFALLS)
def test_every_pitfall_has_its_tests(pitfall: str) -> None:
    for place in PITFALLS[pitfall]:
        file, _, name = place.partition("::")
        tree = ast.parse((HERE / file).read_text(encoding="utf-8"))
        assert name in {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}


def test_no_pitfall_is_left_out() -> None:
    assert [int(title.split()[0]) for title in PITFALLS] == list(range(1, 20))


def smallest(message: Any) -> dict[str, Any]:
    """The fields of a message that asks for nothing: no elements, zeros, empty names."""
    nothing: dict[str, Any] = {
        "string": "",
        "bytes": b"",
        "bool": False,
        "timedelta_i32": timedelta(),
        "timedelta_i64": timedelta(),
        "uuid": None,
    }
    return {
        field.name: ()
        if field.array
        else field.nested(**smallest(field.nested))
        if field.nested is not None
        else nothing.get(field.kind, 0)
        for field in fields_of(message)
    }


# kio has no classes of versions that Kafka 4 dropped; test_oldest_versions.py asks for those
ADVERTISED = [
    (api.key, version)
    for api in APIS.values()
    for version in range(api.minimum, api.maximum + 1)
    if api.key not in SASL_APIS
    and api.serves(version)
    and importlib.util.find_spec(f"kio.schema.{api.name}.v{version}")
]


@pytest.mark.parametrize(
    ("key", "version"), ADVERTISED, ids=[f"{APIS[k].name}-{v}" for k, v in ADVERTISED]
)
def test_every_advertised_version_is_answered_in_its_own_layout(
    address: str, key: int, version: int
) -> None:
    fields = smallest(kind(key, version, "request"))
    if key == ApiKey.PRODUCE:
        fields["acks"] = 1  # or there is no answer
    with Wire(address) as wire:
        answer = wire.ask(key, version, **fields)
        assert wire.ask(ApiKey.API_VERSIONS, 0).error_code == 0, "the connection goes on"
    assert getattr(answer, "throttle_time", timedelta()) == timedelta()


def test_the_leader_epoch_is_the_same_everywhere(address: str, topic: str) -> None:
    def one(key: int, version: int, part: str, **fields: Any) -> Any:
        return kind(key, version, "request", part)(**fields)

    with Wire(address) as wire:
        wire.send(ApiKey.PRODUCE, 7, produce(topic, 0, bytes(batch(2)), acks=-1))
        assert produced(wire.receive()[1], topic)[0] == 0
        wire.send(ApiKey.FETCH, 11, fetch(topic, 0, 0))
        found = {check_batch(fetched(wire.receive()[1])[2]).leader_epoch}
        name = one(3, 9, "MetadataRequestTopic", name=topic)
        told = wire.ask(
            3, 9, topics=(name,), allow_auto_topic_creation=False,
            include_cluster_authorized_operations=False,
            include_topic_authorized_operations=False,
        )  # fmt: skip
        found.add(told.topics[0].partitions[0].leader_epoch)
        part = one(
            2, 4, "ListOffsetsPartition", partition_index=0, current_leader_epoch=0, timestamp=-1
        )
        asked = one(2, 4, "ListOffsetsTopic", name=topic, partitions=(part,))
        told = wire.ask(ApiKey.LIST_OFFSETS, 4, replica_id=-1, isolation_level=0, topics=(asked,))
        found.add(told.topics[0].partitions[0].leader_epoch)
        part = one(
            23, 4, "OffsetForLeaderPartition", partition=0, current_leader_epoch=0, leader_epoch=0
        )
        asked = one(23, 4, "OffsetForLeaderTopic", topic=topic, partitions=(part,))
        told = wire.ask(ApiKey.OFFSET_FOR_LEADER_EPOCH, 4, replica_id=-1, topics=(asked,))
        found.add(told.topics[0].partitions[0].leader_epoch)
    assert found == {0}


def test_the_oldest_join_rebalances_within_its_session(address: str, new_name: Any) -> None:
    """JoinGroup 0 names no rebalance time-out: with one of zero the group would never settle."""
    group = new_name().encode()

    def text(value: bytes) -> bytes:
        return struct.pack(">h", len(value)) + value

    body = (
        text(group)
        + struct.pack(">i", 10_000)
        + text(b"")
        + text(b"consumer")
        + struct.pack(">i", 1)
        + text(b"range")
        + struct.pack(">i", 0)
    )
    with Wire(address) as wire:
        wire.send(ApiKey.JOIN_GROUP, 0, body)
        error, generation = struct.unpack_from(">hi", wire.receive()[1])
        assert (error, generation) == (ErrorCode.NONE, 1)


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "[::1]"])
def test_clients_get_the_address_that_they_connected_to(tmp_path: Path, host: str) -> None:
    from confluent_kafka.admin import AdminClient

    from headworks._server import child_process

    options = ["--listen", f"{host}:0", "--data-dir", str(tmp_path)]
    with child_process.start(["broker", "start", *options]) as running:
        admin = AdminClient({"bootstrap.servers": running.address})
        [told] = admin.list_topics(timeout=DEADLINE).brokers.values()
        assert f"{told.host}:{told.port}" == running.address.replace("[", "").replace("]", "")
