"""Three brokers and a ZooKeeper, as processes, for measurements."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from headworks._cli.stack.embedded_zookeeper import EmbeddedZooKeeper
from headworks._server import child_process
from headworks.errors import UnreachableError

PATIENCE = 120.0
_QUIET: dict[str, str | int | float | bool] = {"log_level": 0}


def until(holds: Callable[[], bool]) -> float:
    """Wait until something holds; seconds that it took. UnreachableError if it never does."""
    began = time.perf_counter()
    while not holds():
        if time.perf_counter() - began > PATIENCE:
            raise UnreachableError("the measured change did not happen")
        time.sleep(0.002)
    return time.perf_counter() - began


class Peers:
    """The brokers by id; each comes back at its address."""

    def __init__(self, folder: Path, zookeeper: EmbeddedZooKeeper, session: float) -> None:
        self.zookeeper = zookeeper
        self.brokers: dict[int, child_process.Service] = {}
        self._folder = folder
        self._session = session

    @property
    def bootstrap(self) -> str:
        """All addresses."""
        return ",".join(broker.address for broker in self.brokers.values())

    def start(self, number: int) -> None:
        """Start a broker, for the first time or again."""
        known = self.brokers.get(number)
        self.brokers[number] = child_process.start(
            [
                *("broker", "start", "--listen", known.address if known else "127.0.0.1:0"),
                *("--data-dir", str(self._folder / f"broker-{number}")),
                *("--zookeeper", f"{self.zookeeper.address}/bench", "--broker-id", str(number)),
                *("--session-seconds", str(self._session)),
            ],
            log_file=self._folder / f"broker-{number}.log",
        )

    def stop(self, number: int) -> None:
        """Stop a broker."""
        self.brokers[number].stop()

    def create(self, topic: str, assignment: list[list[int]]) -> None:
        """Create a topic with its partitions where they are wanted."""
        admin = AdminClient({"bootstrap.servers": self.bootstrap, **_QUIET})
        new = NewTopic(topic, len(assignment), replica_assignment=assignment)

        def created() -> bool:  # right after their start brokers may not know each other yet
            try:
                admin.create_topics([new])[topic].result(PATIENCE)
            except KafkaException:
                return False
            return True

        until(created)


@contextmanager
def peers(folder: Path, *, session: float, count: int = 3) -> Iterator[Peers]:
    """A running cluster, ended with the block."""
    folder.mkdir(parents=True, exist_ok=True)
    with EmbeddedZooKeeper(folder / "zookeeper") as zookeeper, ExitStack() as ending:
        made = Peers(folder, zookeeper, session)
        for number in range(1, count + 1):
            made.start(number)
            ending.callback(made.stop, number)
        yield made
