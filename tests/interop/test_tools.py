"""Apache Kafka's command-line tools on our broker, as its scripts run them."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

from tests.broker.clients import PRODUCERS, Message
from tests.interop import apache_kafka
from tests.interop.in_place import is_apache_kafka, log_folder, start_in_place
from tests.waiting import until

pytestmark = pytest.mark.contract

TOOLS = {
    "kafka-broker-api-versions": "org.apache.kafka.tools.BrokerApiVersionsCommand",
    "kafka-client-compatibility-test": "org.apache.kafka.tools.ClientCompatibilityTest",
    "kafka-cluster": "org.apache.kafka.tools.ClusterTool",
    "kafka-configs": "kafka.admin.ConfigCommand",
    "kafka-console-consumer": "org.apache.kafka.tools.consumer.ConsoleConsumer",
    "kafka-console-producer": "org.apache.kafka.tools.ConsoleProducer",
    "kafka-consumer-groups": "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand",
    "kafka-consumer-perf-test": "org.apache.kafka.tools.ConsumerPerformance",
    "kafka-delete-records": "org.apache.kafka.tools.DeleteRecordsCommand",
    "kafka-dump-log": "org.apache.kafka.tools.DumpLogSegments",
    "kafka-e2e-latency": "org.apache.kafka.tools.EndToEndLatency",
    "kafka-get-offsets": "org.apache.kafka.tools.GetOffsetShell",
    "kafka-groups": "org.apache.kafka.tools.GroupsCommand",
    "kafka-log-dirs": "org.apache.kafka.tools.LogDirsCommand",
    "kafka-producer-perf-test": "org.apache.kafka.tools.ProducerPerformance",
    "kafka-transactions": "org.apache.kafka.tools.TransactionsCommand",
    "kafka-topics": "org.apache.kafka.tools.TopicCommand",
    "kafka-verifiable-consumer": "org.apache.kafka.tools.VerifiableConsumer",
    "kafka-verifiable-producer": "org.apache.kafka.tools.VerifiableProducer",
}


@pytest.fixture(scope="module")
def data_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("tools")


@pytest.fixture(scope="module")
def address(data_dir: Path) -> Iterator[str]:
    with start_in_place(data_dir, "--default-partitions", "1", "--offsets-topic") as running:
        yield running.address


def tool(name: str, *arguments: str, text: str = "", fails: bool = False) -> str:
    """What a tool prints, with what it complains of if it `fails`, as it then must."""
    done = subprocess.run(
        apache_kafka.java(TOOLS[name], *arguments),
        input=text,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert (done.returncode != 0) == fails, done.stdout + done.stderr
    return done.stdout + done.stderr if fails else done.stdout


def lines_of(topic: str, address: str, *options: str) -> list[str]:
    at = ("--bootstrap-server", address, "--topic", topic, "--from-beginning")
    return tool("kafka-console-consumer", *at, "--timeout-ms", "10000", *options).splitlines()


def test_topics(address: str) -> None:
    at = ("--bootstrap-server", address)
    made = ("--topic", "orders", "--partitions", "3", "--config", "retention.ms=100000")
    assert "Created topic orders." in tool("kafka-topics", *at, "--create", *made)
    again = tool("kafka-topics", *at, "--create", "--topic", "orders", fails=True)
    assert "TopicExistsException" in again
    assert "orders" in tool("kafka-topics", *at, "--list").splitlines()
    shown = tool("kafka-topics", *at, "--describe", "--topic", "orders")
    assert "PartitionCount: 3" in shown
    assert "retention.ms=100000" in shown
    assert shown.count("Isr: 1") == 3
    tool("kafka-topics", *at, "--alter", "--topic", "orders", "--partitions", "4")
    shown = tool("kafka-topics", *at, "--describe", "--topic", "orders")
    assert "PartitionCount: 4" in shown
    tool("kafka-topics", *at, "--delete", "--topic", "orders")
    assert "orders" not in tool("kafka-topics", *at, "--list").splitlines()


def test_configs(address: str) -> None:
    at = ("--bootstrap-server", address, "--entity-type", "topics", "--entity-name", "configured")
    tool("kafka-topics", *at[:2], "--create", "--topic", "configured")
    tool("kafka-configs", *at, "--alter", "--add-config", "retention.ms=5000,flush.messages=7")
    shown = tool("kafka-configs", *at, "--describe")
    assert "retention.ms=5000" in shown
    assert "flush.messages=7" in shown
    tool("kafka-configs", *at, "--alter", "--delete-config", "retention.ms")
    assert "retention.ms" not in tool("kafka-configs", *at, "--describe")
    assert "retention.ms=604800000" in tool("kafka-configs", *at, "--describe", "--all")
    refused = tool("kafka-configs", *at, "--alter", "--add-config", "retention.ms=soon", fails=True)
    assert "InvalidConfigurationException" in refused


def test_configs_of_a_group(address: str) -> None:
    at = ("--bootstrap-server", address, "--entity-type", "groups", "--entity-name", "configured")
    session, interval = "consumer.session.timeout.ms", "consumer.heartbeat.interval.ms"
    tool("kafka-configs", *at, "--alter", "--add-config", f"{session}=50000,{interval}=6000")
    shown = tool("kafka-configs", *at, "--describe")
    assert f"{session}=50000" in shown
    assert f"{interval}=6000" in shown
    assert "configured" in tool("kafka-configs", *at[:4], "--describe")
    tool("kafka-configs", *at, "--alter", "--delete-config", session)
    assert f"{session}=50000" not in tool("kafka-configs", *at, "--describe")
    wrong = tool("kafka-configs", *at, "--alter", "--add-config", f"{session}=1", fails=True)
    assert "InvalidConfigurationException" in wrong


def test_console_producer_and_consumer(address: str) -> None:
    at = ("--bootstrap-server", address, "--topic", "console")
    options = ("--reader-property", "parse.key=true", "--reader-property", "key.separator=:")
    tool("kafka-console-producer", *at, *options, text="ada:1\ngrace:2\nada:3\n")
    shown = lines_of("console", address, "--formatter-property", "print.key=true")
    assert shown == ["ada\t1", "grace\t2", "ada\t3"]
    group = lines_of("console", address, "--group", "console-readers")
    assert group == ["1", "2", "3"]


def test_groups(address: str) -> None:
    PRODUCERS["confluent-kafka"](
        address, "grouped", [Message(None, b"%d" % n) for n in range(10)], "none"
    )
    assert len(lines_of("grouped", address, "--group", "readers", "--max-messages", "4")) == 4
    at = ("--bootstrap-server", address)
    group = (*at, "--group", "readers")
    assert "readers" in tool("kafka-consumer-groups", *at, "--list").splitlines()
    assert "readers" in tool("kafka-groups", *at, "--list")
    shown = tool("kafka-consumer-groups", *group, "--describe")
    row = next(line.split() for line in shown.splitlines() if line.startswith("readers"))
    assert row[:6] == ["readers", "grouped", "0", "4", "10", "6"]
    assert "Empty" in tool("kafka-consumer-groups", *group, "--describe", "--state")
    for place, offset in (
        (("--to-earliest",), "0"),
        (("--shift-by", "3"), "3"),
        (("--to-datetime", "2000-01-01T00:00:00.000"), "0"),
    ):
        reset = ("--reset-offsets", "--topic", "grouped", *place, "--execute")
        assert tool("kafka-consumer-groups", *group, *reset).split()[-1] == offset, place
    assert len(lines_of("grouped", address, "--group", "readers", "--max-messages", "10")) == 10
    tool("kafka-consumer-groups", *group, "--delete-offsets", "--topic", "grouped")
    tool("kafka-consumer-groups", *group, "--delete")
    assert "readers" not in tool("kafka-consumer-groups", *at, "--list").splitlines()


def test_committed_offsets_are_read_from_their_topic(address: str) -> None:
    PRODUCERS["confluent-kafka"](address, "followed", [Message(None, b"1")] * 3, "none")
    consumer = Consumer({"bootstrap.servers": address, "group.id": "followers"})

    def commits() -> bool:
        try:
            consumer.commit(offsets=[TopicPartition("followed", 0, 2)], asynchronous=False)
        except KafkaException:  # Apache Kafka is still making the topic
            return False
        return True

    until(commits)
    consumer.close()

    def copied() -> list[dict[str, Any]]:
        formatter = "org.apache.kafka.tools.consumer.OffsetsMessageFormatter"
        shown = lines_of("__consumer_offsets", address, "--formatter", formatter)
        objects = "".join(shown).replace('}{"key"', '}\n{"key"').splitlines()  # it ends no lines
        found = [json.loads(one) for one in objects]
        return [one for one in found if one["key"]["data"]["group"] == "followers"]

    one = until(copied)[-1]
    assert one["key"]["data"] == {"group": "followers", "topic": "followed", "partition": 0}
    assert one["value"]["data"]["offset"] == 2
    assert one["value"]["data"]["commitTimestamp"] > 0
    described = tool(
        "kafka-topics", "--bootstrap-server", address, "--list", "--exclude-internal"
    ).splitlines()
    assert "followed" in described
    assert "__consumer_offsets" not in described


def test_an_open_transaction_is_aborted(address: str) -> None:
    properties = {"bootstrap.servers": address, "transactional.id": "open", "log_level": 0}
    producer = Producer(properties)
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce("in-transaction", b"open")
    producer.flush()
    at = ("--bootstrap-server", address)
    assert "Ongoing" in tool("kafka-transactions", *at, "list")
    where = ("--topic", "in-transaction", "--partition", "0")
    producers = tool("kafka-transactions", *at, "describe-producers", *where)
    assert producers.split()[-1] == "0", "where its transaction begins"
    tool("kafka-transactions", *at, "abort", *where, "--start-offset", "0")
    plain = Producer({"bootstrap.servers": address})
    plain.produce("in-transaction", b"later")
    plain.flush()
    shown = lines_of("in-transaction", address, "--isolation-level", "read_committed")
    assert shown == ["later"]
    found = tool("kafka-transactions", *at, "find-hanging", "--topic", "in-transaction")
    assert len(found.splitlines()) == 1, "the heading alone"


def test_offsets_records_and_folders(address: str, data_dir: Path, tmp_path: Path) -> None:
    PRODUCERS["confluent-kafka"](
        address, "placed", [Message(None, b"%d" % n) for n in range(10)], "none"
    )
    at = ("--bootstrap-server", address)
    assert "placed:0:10" in tool("kafka-get-offsets", *at, "--topic", "placed")
    for time, offset in (("earliest", 0), ("max-timestamp", 0), ("1600000000000", 0)):
        shown = tool("kafka-get-offsets", *at, "--topic", "placed", "--time", time)
        assert f"placed:0:{offset}" in shown, time
    asked = {"partitions": [{"topic": "placed", "partition": 0, "offset": 4}], "version": 1}
    file = tmp_path / "delete.json"
    file.write_text(json.dumps(asked))
    shown = tool("kafka-delete-records", *at, "--offset-json-file", str(file))
    assert "low_watermark: 4" in shown
    shown = tool("kafka-log-dirs", *at, "--describe", "--topic-list", "placed")
    folders = json.loads(next(line for line in shown.splitlines() if line.startswith("{")))
    [folder] = folders["brokers"][0]["logDirs"]
    [partition] = folder["partitions"]
    [segment] = log_folder(data_dir, "placed").glob("*.log")
    assert partition["partition"] == "placed-0"
    assert partition["size"] == segment.stat().st_size


def test_the_broker_and_the_cluster(address: str) -> None:
    shown = tool("kafka-broker-api-versions", "--bootstrap-server", address)
    assert "Produce(0): 0 to" in shown
    assert "ERROR" not in shown
    shown = tool("kafka-cluster", "cluster-id", "--bootstrap-server", address)
    assert "Cluster ID: " in shown


def test_measuring(address: str) -> None:
    at = ("--bootstrap-server", address)
    load = ("--topic", "measured", "--num-records", "20000", "--record-size", "200")
    shown = tool("kafka-producer-perf-test", *at, *load, "--throughput", "-1")
    assert "20000 records sent" in shown
    shown = tool(
        "kafka-consumer-perf-test", *at, "--topic", "measured", "--num-records", "20000",
        "--hide-header",
    )  # fmt: skip
    assert ", 20000, " in shown
    shown = tool(
        "kafka-e2e-latency", *at, "--topic", "end-to-end", "--num-records", "200",
        "--producer-acks", "all", "--record-size", "100",
    )  # fmt: skip
    assert "Avg latency" in shown


def test_verifiable_producer_and_consumer(address: str) -> None:
    at = ("--bootstrap-server", address, "--topic", "verified", "--max-messages", "1000")
    sent = events(tool("kafka-verifiable-producer", *at))
    assert sum(event["name"] == "producer_send_success" for event in sent) == 1000
    assert [event["acked"] for event in sent if event["name"] == "tool_data"] == [1000]
    read = events(tool("kafka-verifiable-consumer", *at, "--group-id", "verifiers", "--verbose"))
    values = [int(event["value"]) for event in read if event["name"] == "record_data"]
    assert values == list(range(1000))
    assert all(event["success"] for event in read if event["name"] == "offsets_committed")


def events(said: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in said.splitlines() if line.startswith("{")]


def test_kafkas_own_compatibility_test(address: str) -> None:
    said = tool(
        "kafka-client-compatibility-test", "--bootstrap-server", address,
        "--topic", "compatible", "--num-cluster-nodes", "1",
        "--expect-record-too-large-exception", "False",
        "--offsets-for-times-supported", "True", "--cluster-id-supported", "True",
        "--create-topics-supported", "True",
        "--describe-acls-supported", str(is_apache_kafka()),
        "--describe-configs-supported", "True", "--idempotent-producer-supported", "True",
    )  # fmt: skip
    assert "SUCCESS" in said


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_our_segment_files_are_kafkas(address: str, data_dir: Path, codec: str) -> None:
    topic = f"dumped-{codec}"
    messages = [Message(b"key-%d" % n, b"value-%d" % n, (("h", b"1"),)) for n in range(50)]
    PRODUCERS["confluent-kafka"](address, topic, messages, codec)
    [segment] = log_folder(data_dir, topic).glob("*.log")
    said = tool("kafka-dump-log", "--files", str(segment), "--deep-iteration", "--print-data-log")
    batches = [line for line in said.splitlines() if line.startswith("baseOffset:")]
    records = [line for line in said.splitlines() if line.startswith("|")]
    assert batches
    assert all(f"compresscodec: {codec}" in line for line in batches), said
    assert all("isvalid: true" in line for line in batches), said
    assert len(records) == 50
    assert "headerKeys: [h]" in records[7]
    assert records[7].endswith("key: key-7 payload: value-7")
