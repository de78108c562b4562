"""Headworks' broker and Apache Kafka: one protocol, one client, one set of flush settings.

Rules: ours is started by the command that users start it with, all checks, metrics and limits on;
Apache Kafka in KRaft mode with the configuration of its release. Both flush by the same two
settings, which are ours by default and given to Kafka. Topics are made with the number of
partitions that a case names, and removed after it.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from bench.broker.clients import Answer, Clients, collect, spawn
from bench.broker.contender import SIZE, stored
from bench.processes import Spent, Usage
from headworks._server import child_process
from headworks.errors import UsageError

FLUSH = {"flush.messages": "100000", "flush.ms": "200"}
BATCHES = {
    "batch 1": ("batch.num.messages=1",),
    "batch 50": ("batch.num.messages=50",),
    "1 MB batches": ("batch.num.messages=10000", "batch.size=1000000"),
}
_SENDING = ("acks=1", "linger.ms=5")


class KafkaLike:
    """A server that speaks Kafka's protocol, and our C client of it."""

    name = ""
    client = "our C client on Debian's librdkafka"
    batches = tuple(BATCHES)
    rereads = True
    warming = 0

    def __init__(self, clients: Clients) -> None:
        self.clients = clients
        self._running: child_process.Service | None = None

    def launch(self, folder: Path) -> child_process.Service:
        """Start the server's process."""
        raise UsageError(f"{self.name} cannot be started in {folder}")

    def topic_folder(self, topic: str, partition: int = 0) -> Path:
        """Where the server keeps a partition."""
        raise UsageError(f"{self.name} has no folder for {topic}-{partition}")

    def start(self, folder: Path) -> None:
        """See `Contender`."""
        self._folder = folder
        self._running = self.launch(folder)
        self._usage = Usage(self._running.process.pid)
        self._admin = AdminClient({"bootstrap.servers": self.address, "log_level": 0})

    def stop(self) -> None:
        """See `Contender`."""
        if self._running is not None:
            self._running.stop(timeout=30)
            self._running = None

    @property
    def address(self) -> str:
        """HOST:PORT."""
        assert self._running is not None
        return self._running.address

    def spent(self) -> Spent:
        """See `Contender`."""
        return self._usage.now()

    def create(
        self, topic: str, partitions: int = 1, config: Mapping[str, str] | None = None
    ) -> None:
        """Make a topic, flushed by the settings that both have."""
        new = NewTopic(topic, partitions, 1, config={**FLUSH, **(config or {})})
        self._admin.create_topics([new])[topic].result(60)

    def produce(self, queue: str, count: int, batch: str) -> Answer:
        """See `Contender`."""
        self.create(queue)
        return self.send(queue, count, *BATCHES[batch])

    def consume(self, queue: str, count: int) -> Answer:
        """See `Contender`."""
        return self.read(queue, count)

    def send(
        self,
        topic: str,
        count: int,
        *settings: str,
        partitions: int = 1,
        payload: str = "random",
    ) -> Answer:
        """Run the producer; later settings win over earlier ones."""
        shape = (str(partitions), str(count), str(SIZE), payload)
        return self._client("produce", topic, *shape, *_SENDING, *settings)

    def read(self, topic: str, count: int, *settings: str, partitions: int = 1) -> Answer:
        """Run one consumer."""
        return self.read_all([topic], count, *settings, partitions=partitions)[0]

    def read_all(
        self, topics: list[str], count: int, *settings: str, partitions: int = 1
    ) -> list[Answer]:
        """Run one consumer for each of `topics` at the same time."""
        tail = (str(partitions), str(count), *settings)
        running = [
            spawn(self.clients.kafka("consume", self.address, topic, *tail)) for topic in topics
        ]
        return [collect(client) for client in running]

    def time(self, what: str, topic: str, count: int, *settings: str) -> Answer:
        """Run the client that times single messages: `latency` or `trip`."""
        return self._client(what, topic, str(count), str(SIZE), *settings)

    def _client(self, what: str, *arguments: str) -> Answer:
        return collect(spawn(self.clients.kafka(what, self.address, *arguments)))

    def stored(self, queue: str) -> int:
        """See `Contender`."""
        return stored(self.topic_folder(queue))

    def drop(self, queue: str) -> None:
        """See `Contender`."""
        self._admin.delete_topics([queue])[queue].result(60)


class Headworks(KafkaLike):
    """Our broker."""

    name = "headworks"
    options: tuple[str, ...] = ()

    def launch(self, folder: Path) -> child_process.Service:
        """As users start it."""
        command = ["broker", "start", "--listen", "127.0.0.1:0", "--metrics", "127.0.0.1:0"]
        return child_process.start(
            [*command, "--data-dir", str(folder), *self.options], log_file=folder / "log"
        )

    def topic_folder(self, topic: str, partition: int = 0) -> Path:
        """See `KafkaLike`."""
        return self._folder / "broker" / "logs" / f"{topic}-{partition}"


class ApacheKafka(KafkaLike):
    """Apache Kafka from Maven Central."""

    name = "Apache Kafka"

    def launch(self, folder: Path) -> child_process.Service:
        """One node, KRaft, the heap that its own start script gives a server."""
        from tests.interop import apache_kafka

        # Kafka looks for what is due by `flush.ms` only so often; by default it never looks.
        config = {"log.flush.scheduler.interval.ms": FLUSH["flush.ms"]}
        return apache_kafka.start(folder, config=config, heap="1g")

    def topic_folder(self, topic: str, partition: int = 0) -> Path:
        """See `KafkaLike`."""
        return self._folder / "data" / f"{topic}-{partition}"
