"""Clients that are given ZooKeeper instead of brokers: they find them, and follow them."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

import confluent_kafka
import pytest
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from consumer_sdk import Consumer
from headworks._cli.stack.ports import free_ports
from headworks._kafka.bootstrap import BootstrapServers, resolve_bootstrap
from headworks._server import child_process
from headworks.errors import UnreachableError
from tests.consumer_sdk.zookeeper_group.cluster import encoder, eventually
from tests.ensemble import ensemble

pytestmark = pytest.mark.e2e

TOPIC = "followed"


@pytest.fixture(scope="module")
def zookeeper(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with ensemble(tmp_path_factory.mktemp("zookeeper")) as running:
        yield running.address


def broker(folder: Path, zookeeper: str, port: int, number: int = 1) -> child_process.Service:
    """The only broker there is, at this port."""
    return child_process.start(
        [
            *("broker", "start", "--listen", f"127.0.0.1:{port}", "--data-dir", str(folder)),
            *("--zookeeper", zookeeper, "--broker-id", str(number)),
        ]
    )


def test_nobody_there_is_said(zookeeper: str) -> None:
    for asks in (resolve_bootstrap, BootstrapServers):
        with pytest.raises(UnreachableError, match="no broker is registered"):
            asks(None, zookeeper)


def test_an_argument_takes_precedence_over_a_setting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HEADWORKS_ZOOKEEPER", "127.0.0.1:1")
    monkeypatch.setenv("HEADWORKS_BOOTSTRAP", "set:9092")
    assert resolve_bootstrap("given:9092", "127.0.0.1:1") == "given:9092"
    assert resolve_bootstrap() == "set:9092"


def test_all_brokers_are_replaced_while_clients_run(
    zookeeper: str, registry: child_process.Service, tmp_path: Path
) -> None:
    """Every address that the clients ever knew is gone; the data came to other addresses."""
    port, other_port = free_ports(2)
    running = [broker(tmp_path, zookeeper, port)]
    try:
        admin = AdminClient({"bootstrap.servers": running[0].address})
        for future in admin.create_topics([NewTopic(TOPIC, 4, 1)]).values():
            future.result(60)
        encode = encoder(registry.url, TOPIC)
        brokers = BootstrapServers(zookeeper=zookeeper)
        producer = confluent_kafka.Producer({**brokers.client(), "log_level": 2})
        with (
            consumer(zookeeper, registry, "broker") as broker_membership,
            consumer(zookeeper, registry, "zookeeper") as zookeeper_membership,
        ):
            send(producer, encode, range(40))
            read(broker_membership, range(40))
            read(zookeeper_membership, range(40))
            running[0].stop()
            with nobody_at(port):
                running.append(broker(tmp_path, zookeeper, other_port))
                send(producer, encode, range(40, 80))
                read(broker_membership, range(40, 80))
                read(zookeeper_membership, range(40, 80))
        brokers.close()
        brokers.close()
    finally:
        for one in running:
            one.stop()


@contextmanager
def nobody_at(port: int) -> Iterator[None]:
    """Keep the port, and refuse connections: the broker of another test may take it otherwise."""
    with socket.socket() as kept:
        kept.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        kept.bind(("127.0.0.1", port))
        yield


def consumer(
    zookeeper: str,
    registry: child_process.Service,
    membership: Literal["broker", "zookeeper"],
    topic: str = TOPIC,
) -> Consumer[dict[str, Any]]:
    return Consumer(
        group=f"by-{membership}",
        topics=[topic],
        zookeeper=zookeeper,
        membership=membership,
        registry=registry.url,
        config={"session.timeout.ms": 6000},
    )


def send(
    producer: confluent_kafka.Producer, encode: Any, numbers: range, topic: str = TOPIC
) -> None:
    refused: list[str] = []
    for number in numbers:
        producer.produce(
            topic,
            encode(number),
            partition=number % 4,
            on_delivery=lambda error, _: refused.append(str(error)) if error else None,
        )
    eventually("the acknowledgements", lambda: producer.flush(0.5) == 0, 120)
    assert not refused


def read(reading: Consumer[dict[str, Any]], numbers: range) -> None:
    """Poll until these were all given (a group that moved may be given some again)."""
    missing = set(numbers)

    def all_read() -> bool:
        message = reading.poll(0.2)
        if message is not None:
            missing.discard(message.event["number"])
        return not missing

    eventually(f"numbers {numbers}", all_read, 120)


def test_a_topic_that_is_made_again_is_read_from_its_beginning(
    zookeeper: str, registry: child_process.Service, tmp_path: Path
) -> None:
    """A member reads on over it, and one that starts later has no offset there."""
    topic = "made-again"
    with broker(tmp_path, zookeeper, free_ports(1)[0], 2) as running:
        admin = AdminClient({"bootstrap.servers": running.address})
        producer = confluent_kafka.Producer({"bootstrap.servers": running.address, "log_level": 2})
        encode = encoder(registry.url, topic)

        def make_again() -> None:
            admin.delete_topics([topic])[topic].result(60)
            eventually("the end of the topic", lambda: topic not in admin.list_topics().topics)
            admin.create_topics([NewTopic(topic, 4, 1)])[topic].result(60)

        admin.create_topics([NewTopic(topic, 4, 1)])[topic].result(60)
        with consumer(zookeeper, registry, "zookeeper", topic) as member:
            send(producer, encode, range(100, 140), topic)
            read(member, range(100, 140))
            member.commit()
            make_again()
            send(producer, encode, range(200, 220), topic)
            read(member, range(200, 220))
            member.commit()
        make_again()
        send(producer, encode, range(300, 308), topic)
        with consumer(zookeeper, registry, "zookeeper", topic) as member:
            read(member, range(300, 308))
