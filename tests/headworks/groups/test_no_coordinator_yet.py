"""A cluster that was just started has no coordinator for a group, for longer than librdkafka asks.

librdkafka asks three times within a second, and then waits for the end of its call. Apache Kafka
makes `__consumer_offsets` meanwhile.
"""

from __future__ import annotations

import socketserver
import struct
from collections.abc import Iterator
from pathlib import Path
from socket import create_connection
from threading import Lock, Thread
from typing import BinaryIO

import confluent_kafka
import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from headworks._cli.stack.ports import free_ports
from headworks._server import child_process
from headworks.groups import Groups, TopicPartition

pytestmark = pytest.mark.e2e

_FIND_COORDINATOR = 10
_COORDINATOR_NOT_AVAILABLE = 15


class YoungCluster(socketserver.ThreadingTCPServer):
    """Passes frames on to a broker, and answers the first questions for a coordinator itself."""

    daemon_threads = True
    allow_reuse_address = True

    def __init__(self, port: int, target: int, unanswered: int) -> None:
        super().__init__(("127.0.0.1", port), _Connection)
        self.target = target
        self._left, self._lock = unanswered, Lock()
        Thread(target=self.serve_forever, args=(0.05,), daemon=True).start()

    def has_none(self) -> bool:
        """Whether this question for a coordinator finds none."""
        with self._lock:
            self._left -= 1
            return self._left >= 0

    @property
    def asked_enough(self) -> bool:
        """Whether a coordinator was found at last."""
        return self._left < 0


class _Connection(socketserver.StreamRequestHandler):
    server: YoungCluster

    def handle(self) -> None:
        with create_connection(("127.0.0.1", self.server.target)) as broker:
            Thread(target=self._pass_answers, args=(broker.makefile("rb"),), daemon=True).start()
            while head := self.rfile.read(4):
                frame = self.rfile.read(*struct.unpack(">i", head))
                key, version, correlation = struct.unpack(">hhi", frame[:8])
                if key == _FIND_COORDINATOR and self.server.has_none():
                    assert version == 2, "this test speaks version 2 of FindCoordinator alone"
                    self._write(
                        struct.pack(
                            ">iihhihi", correlation, 0, _COORDINATOR_NOT_AVAILABLE, -1, -1, 0, -1
                        )
                    )
                else:
                    broker.sendall(head + frame)

    def _pass_answers(self, answers: BinaryIO) -> None:
        while head := answers.read(4):
            self._write(answers.read(*struct.unpack(">i", head)))

    def _write(self, answer: bytes) -> None:
        self.wfile.write(struct.pack(">i", len(answer)) + answer)


@pytest.fixture
def young(tmp_path: Path) -> Iterator[YoungCluster]:
    """A broker whose clients see no coordinator seven times, so in two calls of librdkafka."""
    own, seen = free_ports(2)
    options = ["--listen", f"127.0.0.1:{own}", "--advertise", f"127.0.0.1:{seen}"]
    data = ["--data-dir", str(tmp_path)]
    with (
        child_process.start(["broker", "start", *options, *data]),
        YoungCluster(seen, own, unanswered=7) as cluster,
    ):
        yield cluster
        cluster.shutdown()


def test_offsets_are_set_and_read_when_the_coordinator_is_there(young: YoungCluster) -> None:
    address = f"127.0.0.1:{young.server_address[1]}"
    admin = AdminClient({"bootstrap.servers": address})
    admin.create_topics([NewTopic("orders", 1, 1)])["orders"].result()
    producer = confluent_kafka.Producer({"bootstrap.servers": address})
    producer.produce("orders", b"first")
    assert producer.flush(60) == 0
    place = TopicPartition("orders", 0)
    with Groups(address) as groups:
        groups.move("billing", {place: 1})
        assert young.asked_enough
        (found,) = groups.described(["billing"])
    assert found.offsets == {place: 1}
