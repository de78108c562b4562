"""Three nodes of Apache Kafka in KRaft mode: three replicas, two of them in sync for a write."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from pathlib import Path

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from headworks._cli.stack.ports import free_ports
from tests.interop import apache_kafka
from tests.outgrown.network import Host
from tests.outgrown.servers import Server

NODES = 3
_HEAP = "-Xmx320m"


class KafkaNodes:
    """A cluster of three, each broker and controller in one, and each on a host if there are some.

    Without hosts, all are on loopback, and none can be cut off.
    """

    def __init__(self, folder: Path, hosts: Sequence[Host]) -> None:
        self._folder = folder
        self.hosts = hosts
        ports = iter(free_ports(2 * NODES))
        names = [host.address for host in hosts] or ["127.0.0.1"] * NODES
        self._brokers = [f"{name}:{next(ports)}" for name in names]
        self._controllers = [f"{name}:{next(ports)}" for name in names]
        self.nodes = [self._node(index) for index in range(NODES)]

    @property
    def address(self) -> str:
        """The bootstrap servers."""
        return ",".join(self._brokers)

    def launch(self) -> None:
        """Start the nodes, and return at once."""
        for index, node in enumerate(self.nodes):
            apache_kafka.format_storage(self._properties(index), self._folder)
            node.launch()

    def wait(self) -> None:
        """Return when each node knows all."""
        for node in self.nodes:
            node.wait()

    def empty(self, index: int) -> None:
        """Remove everything that a killed node holds, as a new disk would, and format it."""
        assert not self.nodes[index].alive
        shutil.rmtree(self._properties(index).parent / "data")
        apache_kafka.format_storage(self._properties(index), self._folder)

    def _node(self, index: int) -> Server:
        folder = self._folder / f"node-{index + 1}"
        folder.mkdir(parents=True)
        text = "".join(f"{key}={value}\n" for key, value in self._settings(index).items())
        self._properties(index).write_text(text, encoding="utf-8")
        options = (*apache_kafka.SERVER_OPTIONS, _HEAP)
        command = apache_kafka.java("kafka.Kafka", str(self._properties(index)), options=options)
        inside = self.hosts[index].inside if self.hosts else []
        return Server(
            f"Kafka node {index + 1}",
            [*inside, *command],
            folder / "kafka.log",
            lambda: self._knows_all(self._brokers[index]),
        )

    def _properties(self, index: int) -> Path:
        return self._folder / f"node-{index + 1}" / "server.properties"

    def _settings(self, index: int) -> dict[str, str]:
        voters = [f"{n + 1}@{address}" for n, address in enumerate(self._controllers)]
        listeners = [
            f"PLAINTEXT://{self._brokers[index]}",
            f"CONTROLLER://{self._controllers[index]}",
        ]
        return {
            "process.roles": "broker,controller",
            "node.id": str(index + 1),
            "controller.quorum.voters": ",".join(voters),
            "controller.listener.names": "CONTROLLER",
            "listeners": ",".join(listeners),
            "log.dirs": str(self._properties(index).parent / "data"),
            "default.replication.factor": "3",
            "min.insync.replicas": "2",
            "offsets.topic.replication.factor": "3",
            "offsets.topic.num.partitions": "6",
            "transaction.state.log.replication.factor": "3",
            "transaction.state.log.min.isr": "2",
            "group.initial.rebalance.delay.ms": "0",
        }

    def in_sync(self) -> bool:
        """Return whether every partition has all its replicas in sync."""
        admin = AdminClient({"bootstrap.servers": self.address, "log_level": 0})
        try:
            topics = admin.list_topics(timeout=5).topics.values()
        except KafkaException:
            return False
        partitions = [one for topic in topics for one in topic.partitions.values()]
        return all(len(one.isrs) == len(one.replicas) for one in partitions)

    def _knows_all(self, address: str) -> bool:
        admin = AdminClient({"bootstrap.servers": address, "log_level": 0})
        try:
            return len(admin.list_topics(timeout=2).brokers) == NODES
        except KafkaException:
            return False
