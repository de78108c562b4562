"""A cluster for tests: a ZooKeeper, brokers that reach it by cables of their own, and questions."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from headworks._zookeeper import ZooKeeperSession, live_brokers, open_session
from tests.broker.build import batch
from tests.broker.clients import DEADLINE, eventually
from tests.broker.wire import Wire, fetch, kind, produce, produced
from tests.ensemble import Ensemble, ensemble
from tests.relay import Relay
from tests.soak.process import Broker

_CHROOT = "/headworks"
_PRODUCE, _FETCH, _LIST, _METADATA, _COORDINATOR, _HEARTBEAT = 0, 1, 2, 3, 10, 12


class ClusterBroker(Broker):
    """A broker with an id, and cables to the servers of the ensemble."""

    def __init__(
        self, folder: Path, number: int, zookeeper: Ensemble, session: float, *options: str
    ) -> None:
        self.number = number
        self.cables = [Relay(server.address) for server in zookeeper.servers]
        address = ",".join(cable.address for cable in self.cables) + _CHROOT
        super().__init__(
            folder,
            *("--zookeeper", address, "--broker-id", str(number)),
            *("--session-seconds", str(session), *options),
        )

    def pause(self) -> None:
        """SIGSTOP."""
        os.kill(self.pid, signal.SIGSTOP)

    def resume(self) -> None:
        """SIGCONT."""
        os.kill(self.pid, signal.SIGCONT)

    def cut(self) -> None:
        """It cannot reach ZooKeeper; its clients reach it."""
        for cable in self.cables:
            cable.cut()

    def mend(self) -> None:
        """It can again."""
        for cable in self.cables:
            cable.mend()

    def close(self) -> None:
        """End it, however it is."""
        if self.alive:
            self.resume()
        if self._process is not None:
            self.kill()
        for cable in self.cables:
            cable.close()

    # -- what it says --------------------------------------------------------------------------

    def _wire(self, timeout: float = DEADLINE) -> Wire:
        """A connection; where nobody listens any more, the error says what became of the broker."""
        try:
            return Wire(self.address, timeout)
        except ConnectionRefusedError as error:
            state = "it runs" if self.alive else "it has ended"
            words = self.words()[-2000:]
            raise ConnectionRefusedError(
                f"broker {self.number}: {error}; {state}:\n{words}"
            ) from None

    def produce(self, topic: str, partition: int) -> int:
        """Send one message with acks=all; the error code."""
        with self._wire() as wire:
            wire.send(_PRODUCE, 7, produce(topic, partition, bytes(batch()), acks=-1))
            return produced(wire.receive()[1], topic)[0]

    def fetch(self, topic: str, partition: int) -> int:
        """Read from the beginning; the error code."""
        with self._wire() as wire:
            wire.send(_FETCH, 11, fetch(topic, partition, 0))
            body = wire.receive()[1]
            # throttle, error, session, topics, name, partitions, partition
            at = 4 + 2 + 4 + 4 + 2 + len(topic) + 4 + 4
            return int.from_bytes(body[at : at + 2], "big", signed=True)

    def owns(self, topic: str, partition: int, *, timeout: float = DEADLINE) -> int:
        """Ask for the end of a partition; the error code."""
        topics = kind(_LIST, 5, "request", "ListOffsetsTopic")
        partitions = kind(_LIST, 5, "request", "ListOffsetsPartition")
        asked = partitions(partition_index=partition, timestamp=-1, current_leader_epoch=-1)
        with self._wire(timeout) as wire:
            reply = wire.ask(
                _LIST,
                5,
                replica_id=-1,
                isolation_level=0,
                topics=(topics(name=topic, partitions=(asked,)),),
            )
        return int(reply.topics[0].partitions[0].error_code)

    def leaders(self, topic: str) -> dict[int, int]:
        """The leader of each partition, -1: none."""
        topics = kind(_METADATA, 8, "request", "MetadataRequestTopic")
        with self._wire() as wire:
            reply = wire.ask(
                _METADATA,
                8,
                topics=(topics(name=topic),),
                allow_auto_topic_creation=False,
                include_cluster_authorized_operations=False,
                include_topic_authorized_operations=False,
            )
        return {p.partition_index: p.leader_id for p in reply.topics[0].partitions}

    def peers(self) -> list[int]:
        """The brokers that it knows to be alive."""
        with self._wire() as wire:
            reply = wire.ask(_METADATA, 1, topics=())
        return [broker.node_id for broker in reply.brokers]

    def coordinator(self, group: str) -> int:
        """The id of the broker that it names as the group's coordinator; -1: none."""
        with self._wire() as wire:
            return int(wire.ask(_COORDINATOR, 2, key=group, key_type=0).node_id)

    def heartbeat(self, group: str) -> int:
        """The error code for a member that nobody knows."""
        with self._wire() as wire:
            reply = wire.ask(
                _HEARTBEAT,
                3,
                group_id=group,
                generation_id=1,
                member_id="x",
                group_instance_id=None,
            )
        return int(reply.error_code)


class Cluster:
    """The ensemble, the brokers by id, and a session of the test's own."""

    def __init__(self, zookeeper: Ensemble, brokers: dict[int, ClusterBroker]) -> None:
        self.zookeeper = zookeeper
        self.brokers = brokers
        self.address = zookeeper.address + _CHROOT

    @property
    def bootstrap(self) -> str:
        """All brokers' addresses."""
        return ",".join(broker.address for broker in self.brokers.values())

    def session(self) -> ZooKeeperSession:
        """A session with ZooKeeper, by no cable."""
        return open_session(self.address, timeout=60, wait=60, create_chroot=True)

    def living(self) -> list[int]:
        """The ids that are registered, when ZooKeeper has told them."""
        found: list[int] = []

        def told() -> bool:
            with contextlib.suppress(Exception), self.session() as session:
                found[:] = live_brokers(session)
                return True
            return False

        eventually(told)
        return found


@contextmanager
def cluster(
    folder: Path, brokers: int = 3, servers: int = 1, *, session: float = 6.0
) -> Iterator[Cluster]:
    """A cluster in which every broker knows the others; everything is ended with the block."""
    with ensemble(folder, servers) as zookeeper:
        made = {
            number: ClusterBroker(folder / f"broker-{number}", number, zookeeper, session)
            for number in range(1, brokers + 1)
        }
        try:
            for broker in made.values():
                broker.launch()
            for broker in made.values():
                broker.wait()
            for broker in made.values():
                eventually(lambda b=broker: b.peers() == list(made))  # type: ignore[misc]
            yield Cluster(zookeeper, made)
        finally:
            for broker in made.values():
                broker.close()
