"""Java's own client on our broker: each scenario is a method of JavaClient.java."""

from __future__ import annotations

from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from headworks._server.child_process import Service
from tests.broker.clients import CONSUMERS, PRODUCERS
from tests.broker.test_clients import FULL, LIBRARIES, PLAIN
from tests.damage import batches, flip_bit, produce_batches, segment
from tests.interop.java_client import JavaClient
from tests.tools import needs

# kafka-python reads its schemas in a way that Python deprecates
pytestmark = [
    pytest.mark.contract,
    pytest.mark.filterwarnings("ignore:.*_text is deprecated:DeprecationWarning"),
]

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
# without libraries of its own choice, which Headworks does not need
SPOKEN = {"kafka-python": ("none", "gzip")}
SCENARIOS = [
    "acknowledgements",
    "eager-group",
    "cooperative-group",
    "static-members",
    "fenced-member",
    "consumer-protocol",
    "changing-over",
    "positions",
    "topics",
    "cluster",
    "configs",
    "groups",
    "records",
    "transactions",
]


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_scenario(java_client: JavaClient, broker: Service, scenario: str) -> None:
    java_client.run(broker.address, scenario)


@pytest.mark.our_broker("Kafka serves what we refuse")
def test_what_is_not_served_is_refused_at_once(java_client: JavaClient, broker: Service) -> None:
    java_client.run(broker.address, "refusals")


def test_a_damaged_batch_is_an_error_at_every_poll(
    java_client: JavaClient, broker: Service, broker_folder: Path
) -> None:
    """The first reader finds the wrong CRC itself. Our broker then checks what it served."""
    produce_batches(broker.address, "java-damaged", [b"%03d" % number for number in range(50)])
    path = segment(broker_folder, "java-damaged")
    flip_bit(path, batches(path)[2])
    for _ in range(2):
        java_client.run(broker.address, "damaged", "java-damaged")


@pytest.mark.parametrize("codec", CODECS)
def test_what_java_wrote_all_clients_read(
    java_client: JavaClient, broker: Service, codec: str
) -> None:
    topic = one_partition(broker.address, f"java-wrote-{codec}")
    java_client.send(broker.address, topic, FULL, codec)
    for consumer in LIBRARIES:
        if codec in SPOKEN.get(consumer, CODECS):
            assert CONSUMERS[consumer](broker.address, topic, len(FULL)) == FULL, consumer


@pytest.mark.parametrize("producer", LIBRARIES)
def test_what_libraries_wrote_java_reads(
    java_client: JavaClient, broker: Service, producer: str
) -> None:
    topic = one_partition(broker.address, f"{producer}-wrote")
    codecs = SPOKEN.get(producer, CODECS)
    for codec in codecs:
        PRODUCERS[producer](broker.address, topic, FULL, codec)
    expected = FULL * len(codecs)
    assert java_client.read(broker.address, topic, len(expected)) == expected


@needs("kcat")
def test_kcat_and_java_read_each_other(java_client: JavaClient, broker: Service) -> None:
    topic = one_partition(broker.address, "java-to-kcat")
    java_client.send(broker.address, topic, PLAIN, "none")
    assert CONSUMERS["kcat"](broker.address, topic, len(PLAIN)) == PLAIN
    topic = one_partition(broker.address, "kcat-to-java")
    PRODUCERS["kcat"](broker.address, topic, PLAIN, "none")
    found = java_client.read(broker.address, topic, len(PLAIN))
    assert [(m.key, m.value, m.headers) for m in found] == [
        (m.key, m.value, m.headers) for m in PLAIN
    ]


def one_partition(address: str, name: str) -> str:
    admin = AdminClient({"bootstrap.servers": address})
    admin.create_topics([NewTopic(name, 1, 1)])[name].result(60)
    return name
