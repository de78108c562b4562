"""Grants: every API asks for a role, refuses by its own error code, and lists only what is seen."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from consumer_sdk import Consumer
from headworks._broker.handlers import BROKER_APIS, REQUIRED_ROLES
from headworks._broker.handlers.permissions import BrokerPermissions, RequiredRoles
from headworks._kafka.protocol import APIS, ErrorCode
from headworks._kafka.protocol.apis import BEFORE_LOGIN, ApiKey
from headworks._server import child_process
from headworks._server.security import Access, Principal
from headworks.errors import RefusedError
from tests.broker.build import batch
from tests.broker.clients import DEADLINE
from tests.broker.conftest import start_broker
from tests.broker.secure import CLIENTS, PASSWORDS, DeniedError, Files, Way
from tests.broker.test_group_configs import SESSION, SET, alter, configured, described
from tests.broker.wire import Wire, fetch, fetched, kind, produce, produced

pytestmark = pytest.mark.e2e

GRANTS = """
[[grants]]
to = ["alice"]
roles = ["admin"]

[[grants]]
to = ["bob"]
roles = ["reader", "writer"]
prefix = "shop."
"""
TOPIC, GROUP = ErrorCode.TOPIC_AUTHORIZATION_FAILED, ErrorCode.GROUP_AUTHORIZATION_FAILED
CLUSTER = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
TRANSACTION = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
SECOND = timedelta(seconds=1)


def log_in(address: str, user: str) -> Wire:
    wire = Wire(address)
    assert wire.ask(ApiKey.SASL_HANDSHAKE, 1, mechanism="PLAIN").error_code == 0
    token = f"\0{user}\0{PASSWORDS[user]}".encode()
    assert wire.ask(ApiKey.SASL_AUTHENTICATE, 2, auth_bytes=token).error_code == 0
    return wire


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Files:
    made = Files.make(tmp_path_factory.mktemp("files"))
    made.access.write_text(GRANTS)
    return made


@pytest.fixture(scope="module")
def guarded(
    files: Files, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[child_process.Service]:
    options = [*files.user_options, "--access", str(files.access), "--default-partitions", "1"]
    with start_broker(tmp_path_factory.mktemp("data"), *options) as process:
        with log_in(process.address, "alice") as wire:
            for topic in ("shop.sales", "bank.payments"):
                created = wire.ask(
                    ApiKey.CREATE_TOPICS, 7, **ASKED[ApiKey.CREATE_TOPICS](topic, "g")[1]
                )
                assert codes(created) == [0]
        yield process


# What each API is asked about one topic and one group: version, fields.
def of(api: int, version: int, entity: str, /, **fields: Any) -> Any:
    return kind(api, version, "request", entity)(**fields)


ASKED: dict[int, Any] = {
    ApiKey.LIST_OFFSETS: lambda t, g: (
        5,
        {
            "replica_id": -1,
            "isolation_level": 0,
            "topics": (
                of(
                    *(2, 5, "ListOffsetsTopic"),
                    name=t,
                    partitions=(
                        of(
                            *(2, 5, "ListOffsetsPartition"),
                            partition_index=0,
                            current_leader_epoch=-1,
                            timestamp=-1,
                        ),
                    ),
                ),
            ),
        },
    ),
    ApiKey.METADATA: lambda t, g: (
        5,
        {
            "topics": (of(ApiKey.METADATA, 5, "MetadataRequestTopic", name=t),),
            "allow_auto_topic_creation": False,
        },
    ),
    ApiKey.OFFSET_COMMIT: lambda t, g: (
        7,
        {
            "group_id": g,
            "generation_id_or_member_epoch": -1,
            "member_id": "",
            "group_instance_id": None,
            "topics": (
                of(
                    *(8, 7, "OffsetCommitRequestTopic"),
                    name=t,
                    partitions=(
                        of(
                            *(8, 7, "OffsetCommitRequestPartition"),
                            partition_index=0,
                            committed_offset=0,
                            committed_leader_epoch=-1,
                            committed_metadata="",
                        ),
                    ),
                ),
            ),
        },
    ),
    ApiKey.OFFSET_FETCH: lambda t, g: (
        5,
        {
            "group_id": g,
            "topics": (
                of(
                    ApiKey.OFFSET_FETCH,
                    5,
                    "OffsetFetchRequestTopic",
                    name=t,
                    partition_indexes=(0,),
                ),
            ),
        },
    ),
    ApiKey.FIND_COORDINATOR: lambda t, g: (2, {"key": g, "key_type": 0}),
    ApiKey.JOIN_GROUP: lambda t, g: (
        2,
        {
            "group_id": g,
            "session_timeout": SECOND,
            "rebalance_timeout": SECOND,
            "member_id": "",
            "protocol_type": "consumer",
            "protocols": (
                of(ApiKey.JOIN_GROUP, 2, "JoinGroupRequestProtocol", name="x", metadata=b""),
            ),
        },
    ),
    ApiKey.HEARTBEAT: lambda t, g: (2, {"group_id": g, "generation_id": 1, "member_id": "m"}),
    ApiKey.LEAVE_GROUP: lambda t, g: (2, {"group_id": g, "member_id": "m"}),
    ApiKey.SYNC_GROUP: lambda t, g: (
        2,
        {"group_id": g, "generation_id": 1, "member_id": "m", "assignments": ()},
    ),
    ApiKey.DESCRIBE_GROUPS: lambda t, g: (0, {"groups": (g,)}),
    ApiKey.CREATE_TOPICS: lambda t, g: (
        7,
        {
            "topics": (
                of(
                    *(19, 7, "CreatableTopic"),
                    name=t,
                    num_partitions=1,
                    replication_factor=1,
                    assignments=(),
                    configs=(),
                ),
            ),
            "timeout": SECOND,
            "validate_only": False,
        },
    ),
    ApiKey.DELETE_TOPICS: lambda t, g: (5, {"topic_names": (t,), "timeout": SECOND}),
    ApiKey.DELETE_RECORDS: lambda t, g: (
        0,
        {
            "topics": (
                of(
                    *(21, 0, "DeleteRecordsTopic"),
                    name=t,
                    partitions=(
                        of(
                            ApiKey.DELETE_RECORDS,
                            0,
                            "DeleteRecordsPartition",
                            partition_index=0,
                            offset=0,
                        ),
                    ),
                ),
            ),
            "timeout": SECOND,
        },
    ),
    ApiKey.INIT_PRODUCER_ID: lambda t, g: (
        1,
        {"transactional_id": None, "transaction_timeout": SECOND},
    ),
    ApiKey.OFFSET_FOR_LEADER_EPOCH: lambda t, g: (
        2,
        {
            "topics": (
                of(
                    *(23, 2, "OffsetForLeaderTopic"),
                    topic=t,
                    partitions=(
                        of(
                            *(23, 2, "OffsetForLeaderPartition"),
                            partition=0,
                            current_leader_epoch=-1,
                            leader_epoch=0,
                        ),
                    ),
                ),
            ),
        },
    ),
    ApiKey.ADD_PARTITIONS_TO_TXN: lambda t, g: (
        3,
        {
            "v3_and_below_transactional_id": "tx",
            "v3_and_below_producer_id": 1,
            "v3_and_below_producer_epoch": 0,
            "v3_and_below_topics": (
                of(
                    ApiKey.ADD_PARTITIONS_TO_TXN,
                    3,
                    "AddPartitionsToTxnTopic",
                    name=t,
                    partitions=(0,),
                ),
            ),
        },
    ),
    ApiKey.ADD_OFFSETS_TO_TXN: lambda t, g: (
        3,
        {"transactional_id": "tx", "producer_id": 1, "producer_epoch": 0, "group_id": g},
    ),
    ApiKey.END_TXN: lambda t, g: (
        3,
        {"transactional_id": "tx", "producer_id": 1, "producer_epoch": 0, "committed": True},
    ),
    ApiKey.TXN_OFFSET_COMMIT: lambda t, g: (
        2,
        {
            "transactional_id": "tx",
            "group_id": g,
            "producer_id": 1,
            "producer_epoch": 0,
            "topics": (
                of(
                    *(ApiKey.TXN_OFFSET_COMMIT, 2, "TxnOffsetCommitRequestTopic"),
                    name=t,
                    partitions=(
                        of(
                            *(ApiKey.TXN_OFFSET_COMMIT, 2, "TxnOffsetCommitRequestPartition"),
                            partition_index=0,
                            committed_offset=0,
                            committed_leader_epoch=-1,
                            committed_metadata="",
                        ),
                    ),
                ),
            ),
        },
    ),
    ApiKey.DESCRIBE_PRODUCERS: lambda t, g: (
        0,
        {
            "topics": (
                of(ApiKey.DESCRIBE_PRODUCERS, 0, "TopicRequest", name=t, partition_indexes=(0,)),
            )
        },
    ),
    ApiKey.DESCRIBE_CONFIGS: lambda t, g: (
        1,
        {
            "resources": (
                of(
                    *(32, 1, "DescribeConfigsResource"),
                    resource_type=2,
                    resource_name=t,
                    configuration_keys=None,
                ),
            ),
            "include_synonyms": False,
        },
    ),
    ApiKey.ALTER_CONFIGS: lambda t, g: (
        0,
        {
            "resources": (
                of(
                    *(33, 0, "AlterConfigsResource"),
                    resource_type=2,
                    resource_name=t,
                    configs=(),
                ),
            ),
            "validate_only": False,
        },
    ),
    ApiKey.DESCRIBE_LOG_DIRS: lambda t, g: (4, {"topics": None}),
    ApiKey.CREATE_PARTITIONS: lambda t, g: (
        0,
        {
            "topics": (
                of(
                    ApiKey.CREATE_PARTITIONS,
                    0,
                    "CreatePartitionsTopic",
                    name=t,
                    count=2,
                    assignments=None,
                ),
            ),
            "timeout": SECOND,
            "validate_only": True,
        },
    ),
    ApiKey.DELETE_GROUPS: lambda t, g: (0, {"groups_names": (g,)}),
    ApiKey.INCREMENTAL_ALTER_CONFIGS: lambda t, g: (
        0,
        {
            "resources": (
                of(
                    *(44, 0, "AlterConfigsResource"),
                    resource_type=2,
                    resource_name=t,
                    configs=(),
                ),
            ),
            "validate_only": False,
        },
    ),
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: lambda t, g: (
        0,
        {
            "topics": (
                of(
                    *(45, 0, "ReassignableTopic"),
                    name=t,
                    partitions=(
                        of(*(45, 0, "ReassignablePartition"), partition_index=0, replicas=(1,)),
                    ),
                ),
            ),
        },
    ),
    ApiKey.LIST_PARTITION_REASSIGNMENTS: lambda t, g: (0, {"topics": None}),
    ApiKey.WRITE_TXN_MARKERS: lambda t, g: (
        1,
        {
            "markers": (
                of(
                    *(27, 1, "WritableTxnMarker"),
                    producer_id=0,
                    producer_epoch=0,
                    transaction_result=False,
                    coordinator_epoch=0,
                    topics=(
                        of(*(27, 1, "WritableTxnMarkerTopic"), name=t, partition_indexes=(0,)),
                    ),
                ),
            )
        },
    ),
    ApiKey.DESCRIBE_TOPIC_PARTITIONS: lambda t, g: (
        0,
        {"topics": (of(ApiKey.DESCRIBE_TOPIC_PARTITIONS, 0, "TopicRequest", name=t),)},
    ),
    ApiKey.OFFSET_DELETE: lambda t, g: (
        0,
        {
            "group_id": g,
            "topics": (
                of(
                    *(47, 0, "OffsetDeleteRequestTopic"),
                    name=t,
                    partitions=(
                        of(
                            ApiKey.OFFSET_DELETE,
                            0,
                            "OffsetDeleteRequestPartition",
                            partition_index=0,
                        ),
                    ),
                ),
            ),
        },
    ),
    ApiKey.CONSUMER_GROUP_HEARTBEAT: lambda t, g: (
        1,
        {
            "group_id": g,
            "member_id": "nobody",
            "member_epoch": 1,
            "subscribed_topic_names": (t,),
            "topic_partitions": None,
        },
    ),
    ApiKey.CONSUMER_GROUP_DESCRIBE: lambda t, g: (
        1,
        {"group_ids": (g,), "include_authorized_operations": True},
    ),
}
# APIs that name neither topic nor group in a request, and are tested by themselves below
LISTINGS = {
    ApiKey.LIST_GROUPS,
    ApiKey.DESCRIBE_CLUSTER,
    ApiKey.DESCRIBE_TRANSACTIONS,
    ApiKey.LIST_TRANSACTIONS,
    ApiKey.LIST_CONFIG_RESOURCES,
}
# API -> the code that somebody without any grant gets, for topic "bank.payments" and group "bank"
REFUSALS = {
    **dict.fromkeys(
        (
            ApiKey.LIST_OFFSETS,
            ApiKey.METADATA,
            ApiKey.CREATE_TOPICS,
            ApiKey.DELETE_TOPICS,
            ApiKey.DELETE_RECORDS,
            ApiKey.OFFSET_FOR_LEADER_EPOCH,
            ApiKey.ADD_PARTITIONS_TO_TXN,
            ApiKey.DESCRIBE_PRODUCERS,
            ApiKey.DESCRIBE_CONFIGS,
            ApiKey.ALTER_CONFIGS,
            ApiKey.CREATE_PARTITIONS,
            ApiKey.INCREMENTAL_ALTER_CONFIGS,
            ApiKey.ALTER_PARTITION_REASSIGNMENTS,
            ApiKey.DESCRIBE_TOPIC_PARTITIONS,
        ),
        TOPIC,
    ),
    **dict.fromkeys(
        (
            ApiKey.OFFSET_COMMIT,
            ApiKey.OFFSET_FETCH,
            ApiKey.FIND_COORDINATOR,
            ApiKey.JOIN_GROUP,
            ApiKey.HEARTBEAT,
            ApiKey.LEAVE_GROUP,
            ApiKey.SYNC_GROUP,
            ApiKey.DESCRIBE_GROUPS,
            ApiKey.DELETE_GROUPS,
            ApiKey.OFFSET_DELETE,
            ApiKey.ADD_OFFSETS_TO_TXN,
            ApiKey.TXN_OFFSET_COMMIT,
            ApiKey.CONSUMER_GROUP_HEARTBEAT,
            ApiKey.CONSUMER_GROUP_DESCRIBE,
        ),
        GROUP,
    ),
    ApiKey.END_TXN: TRANSACTION,
    **dict.fromkeys(
        (
            ApiKey.INIT_PRODUCER_ID,
            ApiKey.DESCRIBE_LOG_DIRS,
            ApiKey.LIST_PARTITION_REASSIGNMENTS,
            ApiKey.WRITE_TXN_MARKERS,
        ),
        CLUSTER,
    ),
}


def codes(message: Any) -> list[int]:
    """Every error code of a reply."""
    found: list[int] = []
    for field in dataclasses.fields(message):
        value = getattr(message, field.name)
        if field.name in ("error_code", "partition_error_code"):
            found.append(int(value))
        elif isinstance(value, tuple):
            found += [
                code for item in value if dataclasses.is_dataclass(item) for code in codes(item)
            ]
    return found


def test_every_served_api_has_a_rule_and_a_test() -> None:
    assert set(BROKER_APIS) == set(APIS) == set(ApiKey)
    handled = {key for key, api in BROKER_APIS.items() if api.handler is not None}
    assert set(BROKER_APIS) - handled == BEFORE_LOGIN | {ApiKey.PRODUCE, ApiKey.FETCH}
    assert handled == set(ASKED) | LISTINGS
    assert handled - set(REFUSALS) == LISTINGS
    needs_nothing = {key for key, api in BROKER_APIS.items() if api.required == RequiredRoles()}
    assert needs_nothing == BEFORE_LOGIN | {ApiKey.DESCRIBE_CLUSTER}


@pytest.mark.parametrize("api", sorted(ASKED))
def test_who_has_no_grant_is_refused(guarded: child_process.Service, api: ApiKey) -> None:
    version, fields = ASKED[api]("bank.payments", "bank")
    with log_in(guarded.address, "carol") as wire:
        found = codes(wire.ask(api, version, **fields))
    assert set(found) - {0} == {REFUSALS[api]}, found


@pytest.mark.parametrize("api", sorted(set(ASKED) - {ApiKey.DELETE_TOPICS}))
def test_an_admin_is_not_refused(guarded: child_process.Service, api: int) -> None:
    version, fields = ASKED[api]("bank.payments", "bank")
    with log_in(guarded.address, "alice") as wire:
        assert not {TOPIC, GROUP, CLUSTER, TRANSACTION} & set(
            codes(wire.ask(api, version, **fields))
        )


MANAGING = {
    ApiKey.CREATE_TOPICS,
    ApiKey.DELETE_TOPICS,
    ApiKey.DELETE_RECORDS,
    ApiKey.ALTER_CONFIGS,
    ApiKey.DESCRIBE_LOG_DIRS,
    ApiKey.CREATE_PARTITIONS,
    ApiKey.DELETE_GROUPS,
    ApiKey.INCREMENTAL_ALTER_CONFIGS,
    ApiKey.ALTER_PARTITION_REASSIGNMENTS,
    ApiKey.LIST_PARTITION_REASSIGNMENTS,
    ApiKey.WRITE_TXN_MARKERS,
    ApiKey.OFFSET_DELETE,
}


@pytest.mark.parametrize("api", sorted(ASKED))
def test_readers_and_writers_do_not_manage(guarded: child_process.Service, api: int) -> None:
    version, fields = ASKED[api]("shop.sales", "shop.group")
    with log_in(guarded.address, "bob") as wire:
        refused = {TOPIC, GROUP, CLUSTER, TRANSACTION} & set(
            codes(wire.ask(api, version, **fields))
        )
    assert bool(refused) == (api in MANAGING)


def test_produce_and_fetch(guarded: child_process.Service) -> None:
    def tried(user: str, topic: str) -> tuple[int, int]:
        with log_in(guarded.address, user) as wire:
            wire.send(ApiKey.PRODUCE, 7, produce(topic, 0, bytes(batch()), acks=-1))
            put = produced(wire.receive()[1], topic)[0]
            wire.send(ApiKey.FETCH, 11, fetch(topic, 0, 0, wait_ms=5000))
            return put, fetched(wire.receive()[1])[0]

    assert tried("bob", "shop.sales") == (0, 0)
    assert tried("bob", "bank.payments") == (TOPIC, TOPIC)
    assert tried("carol", "no.such.topic") == (TOPIC, TOPIC), "nor is it told what exists"
    assert tried("alice", "bank.payments") == (0, 0)


def test_acks_0_without_the_right_closes(guarded: child_process.Service) -> None:
    with log_in(guarded.address, "carol") as wire:
        wire.send(ApiKey.PRODUCE, 7, produce("shop.sales", 0, bytes(batch()), acks=0))
        assert wire.closed()


def test_listings_leave_out_what_is_not_seen(guarded: child_process.Service) -> None:
    def listed(user: str) -> tuple[set[str], set[str]]:
        with log_in(guarded.address, user) as wire:
            every = wire.ask(ApiKey.METADATA, 5, topics=None, allow_auto_topic_creation=True).topics
            groups = wire.ask(ApiKey.LIST_GROUPS, 2).groups
        return {t.name for t in every}, {g.group_id for g in groups}

    with log_in(guarded.address, "alice") as wire:
        for topic, group in (("shop.sales", "shop.seen"), ("bank.payments", "bank.seen")):
            assert codes(
                wire.ask(ApiKey.OFFSET_COMMIT, 7, **ASKED[ApiKey.OFFSET_COMMIT](topic, group)[1])
            ) == [0]
    topics, groups = listed("alice")
    assert topics >= {"shop.sales", "bank.payments"}
    assert groups >= {"shop.seen", "bank.seen"}
    for _ in range(2):  # the second time from memory, and never what was kept for another
        topics, groups = listed("bob")
        assert "shop.sales" in topics
        assert "shop.seen" in groups
        assert all(name.startswith("shop.") for name in topics | groups)
        assert listed("carol") == (set(), set())


def test_positions_in_topics_that_are_not_seen_are_left_out(guarded: child_process.Service) -> None:
    with log_in(guarded.address, "alice") as wire:
        assert codes(
            wire.ask(
                ApiKey.OFFSET_COMMIT,
                7,
                **ASKED[ApiKey.OFFSET_COMMIT]("bank.payments", "shop.mixed")[1],
            )
        ) == [0]
        assert codes(
            wire.ask(
                ApiKey.OFFSET_COMMIT,
                7,
                **ASKED[ApiKey.OFFSET_COMMIT]("shop.sales", "shop.mixed")[1],
            )
        ) == [0]
    with log_in(guarded.address, "bob") as wire:
        every = wire.ask(ApiKey.OFFSET_FETCH, 5, group_id="shop.mixed", topics=None)
        assert [topic.name for topic in every.topics] == ["shop.sales"]
        assert set(
            codes(
                wire.ask(
                    ApiKey.OFFSET_FETCH,
                    5,
                    **ASKED[ApiKey.OFFSET_FETCH]("bank.payments", "shop.mixed")[1],
                )
            )
        ) == {
            0,
            TOPIC,
        }
        assert set(
            codes(
                wire.ask(
                    ApiKey.OFFSET_COMMIT,
                    7,
                    **ASKED[ApiKey.OFFSET_COMMIT]("bank.payments", "shop.mixed")[1],
                )
            )
        ) == {TOPIC}


def test_who_may_write_may_create_by_writing_and_nobody_else(
    guarded: child_process.Service,
) -> None:
    def asked(user: str, topic: str) -> int:
        name = of(ApiKey.METADATA, 5, "MetadataRequestTopic", name=topic)
        with log_in(guarded.address, user) as wire:
            reply = wire.ask(ApiKey.METADATA, 5, topics=(name,), allow_auto_topic_creation=True)
        return int(reply.topics[0].error_code)

    assert asked("carol", "shop.new") == TOPIC
    assert asked("bob", "bank.new") == TOPIC
    assert asked("alice", "shop.new") == 0
    assert asked("bob", "shop.newer") == 0


def test_configs_of_the_broker_are_for_admins(guarded: child_process.Service) -> None:
    name = of(
        *(32, 1, "DescribeConfigsResource"),
        resource_type=4,
        resource_name="1",
        configuration_keys=None,
    )
    for user, expected in (("alice", 0), ("bob", CLUSTER)):
        with log_in(guarded.address, user) as wire:
            reply = wire.ask(ApiKey.DESCRIBE_CONFIGS, 1, resources=(name,), include_synonyms=False)
            assert codes(reply) == [expected]


def test_configs_of_a_group_are_for_its_admins_and_seen_by_its_readers(
    guarded: child_process.Service,
) -> None:
    with log_in(guarded.address, "alice") as admin, log_in(guarded.address, "bob") as reader:
        for group in ("shop.app", "bank.app"):
            assert alter(reader, group, (SESSION, "60000", SET)).error_code == GROUP
            assert alter(admin, group, (SESSION, "60000", SET)).error_code == ErrorCode.NONE
        assert described(reader, "shop.app")[SESSION][0] == "60000"
        assert configured(reader) == ["shop.app"]
        assert set(configured(admin)) == {"shop.app", "bank.app"}


def test_refusals_are_logged_once_and_counted(guarded: child_process.Service) -> None:
    with log_in(guarded.address, "carol") as wire:
        for _ in range(3):
            assert codes(wire.ask(ApiKey.FIND_COORDINATOR, 2, key="only.here", key_type=0)) == [
                GROUP
            ]
    lines = [line for line in guarded.words().splitlines() if "only.here" in line]
    assert len(lines) == 1
    assert "carol from 127.0.0.1:" in lines[0]
    assert "may not find_coordinator group 'only.here'" in lines[0]


@pytest.mark.parametrize("client", ["confluent-kafka", "aiokafka"])
def test_real_clients_are_let_in_and_kept_out(
    guarded: child_process.Service, files: Files, client: str
) -> None:
    assert CLIENTS[client](guarded.address, "shop.sales", Way.of(files, "bob"), b"1") == b"1"
    with pytest.raises(DeniedError):
        CLIENTS[client](guarded.address, "bank.payments", Way.of(files, "bob"), b"2")


def test_a_group_of_a_real_client(guarded: child_process.Service, files: Files) -> None:
    from confluent_kafka import Consumer, KafkaError

    def error_of(group: str) -> int | None:
        consumer = Consumer(
            {
                "bootstrap.servers": guarded.address,
                "group.id": group,
                "auto.offset.reset": "earliest",
                **Way.of(files, "bob").librdkafka,
            }
        )
        try:
            consumer.subscribe(["shop.sales"])
            message = consumer.poll(DEADLINE)
            assert message is not None
            error = message.error()
            return None if error is None else int(error.code())
        finally:
            consumer.close()

    with log_in(guarded.address, "bob") as wire:
        wire.send(ApiKey.PRODUCE, 7, produce("shop.sales", 0, bytes(batch()), acks=-1))
        wire.receive()
    assert error_of("shop.readers") is None
    assert error_of("bank.readers") == KafkaError.GROUP_AUTHORIZATION_FAILED


def test_changed_grants_count_within_two_seconds(tmp_path: Path) -> None:
    files = Files.make(tmp_path / "files")
    files.access.write_text(GRANTS)
    options = [*files.user_options, "--access", str(files.access)]

    def write(grants: str) -> None:
        """In one piece: the broker may be reading it."""
        (tmp_path / "new").write_text(grants)
        (tmp_path / "new").replace(files.access)

    def error(wire: Wire) -> int:
        wire.send(ApiKey.PRODUCE, 7, produce("shop.sales", 0, bytes(batch())))
        return produced(wire.receive()[1], "shop.sales")[0]

    def settled(wire: Wire, expected: int) -> bool:
        end = time.monotonic() + DEADLINE
        while error(wire) != expected:
            if time.monotonic() > end:
                return False
            time.sleep(0.1)
        return True

    with start_broker(tmp_path / "data", *options) as process:
        with log_in(process.address, "alice") as alice, log_in(process.address, "bob") as bob:
            alice.ask(ApiKey.CREATE_TOPICS, 7, **ASKED[ApiKey.CREATE_TOPICS]("shop.sales", "g")[1])
            assert error(bob) == 0
            write(GRANTS.replace("shop.", "mill."))
            assert settled(bob, TOPIC)
            assert error(alice) == 0
            write("[[grants]]\nto = 7")
            assert settled(alice, TOPIC), "what cannot be understood lets nobody in"
            write(GRANTS)
            assert settled(bob, 0)
        log = process.words()
    assert "the grants have changed" in log
    assert "nobody may do anything until this is mended" in log


def test_grants_without_users_are_about_anonymous(tmp_path: Path) -> None:
    files = Files.make(tmp_path / "files")
    files.access.write_text('[[grants]]\nto = ["anonymous"]\nroles = ["reader"]\n')
    options = ["--access", str(files.access)]
    with start_broker(tmp_path / "data", *options) as process, Wire(process.address) as wire:
        assert codes(wire.ask(ApiKey.FIND_COORDINATOR, 2, key="g", key_type=0)) == [0]
        assert codes(
            wire.ask(ApiKey.CREATE_TOPICS, 7, **ASKED[ApiKey.CREATE_TOPICS]("new", "g")[1])
        ) == [TOPIC]


def test_decisions_are_remembered_in_bounds_and_forgotten(tmp_path: Path) -> None:
    path = tmp_path / "access.toml"
    path.write_text(GRANTS)
    permissions = BrokerPermissions(Access.load(path), Principal("bob"), REQUIRED_ROLES)
    for number in range(25_000):
        assert permissions.topic(ApiKey.FETCH, f"shop.{number}")
        assert not permissions.topic(ApiKey.FETCH, f"x{number}")
    [remembered] = {id(d): d for k, d in permissions._topics.items() if k == ApiKey.FETCH}.values()
    assert len(remembered) <= 10_000
    permissions.forget()
    assert not remembered
    assert permissions.version == 1


@pytest.mark.parametrize(
    ("topic", "group", "reason"),
    [("shop.sales", "bank.group", "group"), ("bank.payments", "shop.group", "bank.payments")],
)
def test_a_consumer_says_at_once_that_it_is_refused(
    guarded: child_process.Service, topic: str, group: str, reason: str
) -> None:
    login = {"sasl.username": "bob", "sasl.password": PASSWORDS["bob"]}
    config = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN", **login}
    options: dict[str, Any] = {"bootstrap": guarded.address, "audit": False, "config": config}
    with (
        Consumer(topics=[topic], group=group, **options) as consumer,
        pytest.raises(RefusedError, match=f"refuses this member: .*{reason}") as caught,
    ):
        next(iter(consumer))
    assert caught.value.code in (TOPIC, GROUP)
    assert "grant its user" in str(caught.value.fix)
