"""Programs of others that run until they are killed, and what readers then find.

Rule: a program ends with the test that started it, and its output stays in its log file.
"""

from __future__ import annotations

import signal
import subprocess
import time
from collections import Counter
from collections.abc import Collection, Hashable, Iterable, Sequence
from pathlib import Path
from threading import Event, Thread

from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from headworks._kafka.log_offsets import LATEST, list_offsets
from tests.interop import maven
from tests.waiting import until

PATIENCE_SECONDS = 300.0  # for a Java program on a machine with much else to do
_POLL_SECONDS = 1.0
_FEED_SECONDS = 0.002


class Program:
    """A process that is killed and started again, each time with the same command.

    On entry it is not started; at the end it is killed.
    """

    def __init__(self, command: Sequence[str], log: Path) -> None:
        self._command = [*maven.bound(), *command]
        self._log = log
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Program:
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    def start(self) -> None:
        """Start it, and do not wait."""
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                self._command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def kill(self) -> None:
        """Send SIGKILL."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def pause(self) -> None:
        """Send SIGSTOP."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Send SIGCONT."""
        assert self._process is not None
        self._process.send_signal(signal.SIGCONT)

    def check(self) -> None:
        """Raise AssertionError with its last words if it ended by itself."""
        if self._process is not None and self._process.poll() is not None:
            raise AssertionError(self.words()[-4000:])

    def words(self) -> str:
        """Return what it printed."""
        return self._log.read_text(errors="replace") if self._log.exists() else ""


class Feed:
    """Writes messages with the values 0, 1, 2, ... to a topic, until it is told to stop.

    The key of a message is its number modulo `keys`.
    """

    def __init__(self, address: str, topic: str, keys: int) -> None:
        self.sent: list[tuple[bytes, bytes]] = []  # key and value, acknowledged after `finish`
        self._producer = Producer({"bootstrap.servers": address, "enable.idempotence": True})
        self._topic, self._keys = topic, keys
        self._stop = Event()
        self._thread = Thread(target=self._run, daemon=True)

    def __enter__(self) -> Feed:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.finish()

    def finish(self) -> None:
        """Stop, and wait until all messages are acknowledged."""
        self._stop.set()
        self._thread.join()
        assert self._producer.flush(PATIENCE_SECONDS) == 0

    def _run(self) -> None:
        while not self._stop.wait(_FEED_SECONDS):
            number = len(self.sent)
            message = b"key-%d" % (number % self._keys), b"%d" % number
            self._producer.produce(self._topic, message[1], message[0])
            self._producer.poll(0)
            self.sent.append(message)


class Follower:
    """Counts the committed messages of a topic, while programs write it."""

    def __init__(self, address: str, topic: str, *programs: Program) -> None:
        self.count = 0
        self._programs = programs  # must be alive
        self._consumer = _reader(address, topic, committed=True)

    def __enter__(self) -> Follower:
        return self

    def __exit__(self, *_: object) -> None:
        self._consumer.close()

    def wait_for(self, count: int) -> None:
        """Wait until this many messages are committed. AssertionError if they do not arrive."""
        end = time.monotonic() + PATIENCE_SECONDS
        while self.count < count:
            found = self._consumer.consume(1000, _POLL_SECONDS)
            self.count += sum(message.error() is None for message in found)
            for program in self._programs:
                program.check()
            assert time.monotonic() < end, (
                f"{self.count} of {count} messages are committed; the programs say: "
                + "\n".join(program.words()[-2000:] for program in self._programs)
            )


def create(address: str, *names: str, partitions: int = 2) -> None:
    """Create topics."""
    admin = AdminClient({"bootstrap.servers": address, "log_level": 0})
    futures = admin.create_topics([NewTopic(name, partitions, 1) for name in names])
    for future in futures.values():
        future.result(PATIENCE_SECONDS)
    until(lambda: set(names) <= set(admin.list_topics(timeout=60).topics))


def has_open_transaction(address: str, topic: str) -> bool:
    """Return whether readers of committed messages stop before the end of a partition."""
    admin = AdminClient({"bootstrap.servers": address, "log_level": 0})
    places = [
        (topic, index) for index in admin.list_topics(topic, timeout=60).topics[topic].partitions
    ]
    stable, end = (
        list_offsets(admin, places, LATEST, timeout=60, committed=committed).offsets
        for committed in (True, False)
    )
    return stable != end


def kill_in_a_transaction(program: Program, address: str, topic: str) -> None:
    """Send SIGKILL while the program has written uncommitted messages to the topic."""

    def stopped_in_a_transaction() -> bool:
        program.pause()
        if has_open_transaction(address, topic):
            return True
        program.resume()
        return False

    until(stopped_in_a_transaction, PATIENCE_SECONDS)
    program.kill()


def messages(address: str, topic: str, *, committed: bool = True) -> list[Message]:
    """Return the messages of a topic, in the order of each partition; `committed` ones only."""
    consumer = _reader(address, topic, committed=committed)
    try:
        partitions = len(consumer.assignment())
        found: list[Message] = []
        ended: set[int | None] = set()
        while len(ended) < partitions:
            message = consumer.poll(_POLL_SECONDS)
            if message is None:
                continue
            problem = message.error()
            if problem is None:
                found.append(message)
            elif problem.code() == KafkaError._PARTITION_EOF:
                ended.add(message.partition())
        return found
    finally:
        consumer.close()


def _reader(address: str, topic: str, *, committed: bool) -> Consumer:
    """Return a consumer at the beginning of all partitions."""
    consumer = Consumer(
        {
            "bootstrap.servers": address,
            "group.id": "reader",
            "isolation.level": "read_committed" if committed else "read_uncommitted",
            "enable.partition.eof": True,
            "log_level": 0,
        }
    )
    known = consumer.list_topics(topic, timeout=60).topics[topic].partitions
    consumer.assign([TopicPartition(topic, index, 0) for index in known])
    return consumer


def repeated_or_missing(found: Iterable[Hashable], expected: Collection[Hashable]) -> str:
    """Return what differs, in a few words; empty if each message is there once."""
    wanted, counted = Counter(expected), Counter(found)
    missing, repeated = wanted - counted, counted - wanted
    if not missing and not repeated:
        return ""
    return (
        f"of {len(expected)}, {missing.total()} are missing ({list(missing)[:3]})"
        f" and {repeated.total()} are too many ({list(repeated)[:3]})"
    )
