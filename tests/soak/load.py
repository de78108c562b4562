"""Constant load on a broker that dies: producers, and a consumer that commits, on threads.

Every client is unmodified and told only to come back quickly. Nothing here judges: what clients are
told goes into the ledger.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from random import Random
from typing import Any

from confluent_kafka import Consumer, KafkaException, Message, Producer, TopicPartition

from tests.soak.ledger import Found, Ledger, value_of

GROUP = "readers"
_QUIET = {"log_level": 0}
_PROMPT: dict[str, Any] = {
    "reconnect.backoff.ms": 20,
    "reconnect.backoff.max.ms": 100,
    "retry.backoff.ms": 20,
    **_QUIET,
}
_PATIENCE = 120.0
_AHEAD = 5000  # messages of one producer without an answer


class Load:
    """Clients of one topic; `start` them, let them run, `finish`.

    The last partition is written with acks=1 alone: nothing but its readers has it flushed.
    """

    def __init__(self, address: str, topic: str, partitions: int, ledger: Ledger) -> None:
        self.address = address
        self.topic = topic
        self.partitions = partitions
        self.ledger = ledger
        self._stop = threading.Event()
        self._done_writing = threading.Event()
        self._writers = [
            self._thread(self._librdkafka, "librdkafka", 3000, {"enable.idempotence": True}, "lz4"),
            self._thread(self._kafka_python, "kafka-python", 1000),
            self._thread(self._librdkafka, "noise", 1000, {"acks": 1}, "none"),
        ]
        self._readers = [self._thread(self._read)]

    def start(self) -> None:
        """Begin."""
        for thread in (*self._writers, *self._readers):
            thread.start()

    def finish(self) -> None:
        """End: writers wait for their last acknowledgements, then the readers go."""
        self._stop.set()
        for thread in self._writers:
            thread.join()
        self._done_writing.set()
        for thread in self._readers:
            thread.join()

    def _thread(self, target: Callable[..., None], *arguments: Any) -> threading.Thread:
        def run() -> None:
            try:
                target(*arguments)
            except Exception as error:
                self.ledger.fail(f"{target.__name__}{arguments}: {error!r}")

        return threading.Thread(target=run, name=target.__name__.strip("_"))

    # -- writers -----------------------------------------------------------------------------

    def _librdkafka(self, name: str, rate: int, options: dict[str, Any], codec: str) -> None:
        ledger = self.ledger
        producer = Producer(
            {
                "bootstrap.servers": self.address,
                "compression.type": codec,
                "linger.ms": 3,
                "batch.num.messages": 40,
                "message.timeout.ms": 0,
                "queue.buffering.max.messages": _AHEAD,
                **_PROMPT,
                **options,
            }
        )

        def sender(partition: int, number: int) -> Callable[[Any, Any], None]:
            def delivered(error: Any, _: Any) -> None:
                if error is None:
                    ledger.acknowledge(name, partition, number)
                else:
                    ledger.fail(f"{name} was refused {partition} {number}: {error}")

            return delivered

        of = self.partitions if name == "noise" else self.partitions - 1
        for partition, number in self._numbers(rate, of):
            value = value_of(name, partition, number)
            while not self._stop.is_set():  # or a broker that is gone for good would hold it up
                try:
                    producer.produce(
                        self.topic,
                        value,
                        partition=partition,
                        on_delivery=sender(partition, number),
                    )
                    break
                except BufferError:
                    producer.poll(0.05)
            producer.poll(0)
        if producer.flush(_PATIENCE):
            ledger.fail(f"{name}: {len(producer)} messages were never answered")

    def _kafka_python(self, name: str, rate: int) -> None:
        from kafka import KafkaProducer

        logging.getLogger("kafka").setLevel(logging.CRITICAL)
        producer = KafkaProducer(
            bootstrap_servers=self.address,
            compression_type="gzip",
            linger_ms=3,
            reconnect_backoff_ms=20,
            reconnect_backoff_max_ms=100,
            retry_backoff_ms=20,
            max_block_ms=_PATIENCE * 1000,
            delivery_timeout_ms=3600 * 1000,
        )

        open_messages = threading.Semaphore(_AHEAD)

        def answered(partition: int, number: int, error: Any) -> None:
            open_messages.release()
            if error is None:
                self.ledger.acknowledge(name, partition, number)
            else:
                self.ledger.fail(f"{name} was refused {partition} {number}: {error}")

        for partition, number in self._numbers(rate, self.partitions - 1):
            # no more than the broker keeps up with, and not for ever if it is gone
            while not open_messages.acquire(timeout=0.2) and not self._stop.is_set():
                pass
            value = value_of(name, partition, number)
            future = producer.send(self.topic, value, partition=partition)
            future.add_callback(lambda _, p=partition, n=number: answered(p, n, None))
            future.add_errback(lambda error, p=partition, n=number: answered(p, n, error))
        producer.flush(_PATIENCE)
        producer.close()

    def _numbers(self, rate: int, partitions: int) -> Any:
        """Partition and number of one message after the other, at a steady rate, until the end."""
        number, began = 0, time.monotonic()
        while not self._stop.is_set():
            ahead = number * partitions / rate - (time.monotonic() - began)
            if ahead > 0.01:
                self._stop.wait(ahead)
            elif ahead < -1:
                began -= ahead  # it was held up: no rush afterwards
            for partition in range(partitions):
                yield partition, number
            number += 1

    # -- readers -----------------------------------------------------------------------------

    def _read(self) -> None:
        """Read everything as it comes, and commit what was read."""
        consumer = Consumer(
            {
                "bootstrap.servers": self.address,
                "group.id": GROUP,
                "enable.auto.commit": False,
                "auto.offset.reset": "error",
                "fetch.wait.max.ms": 50,
                "fetch.error.backoff.ms": 20,
                "check.crcs": True,
                **_PROMPT,
            }
        )
        consumer.assign([TopicPartition(self.topic, p, 0) for p in range(self.partitions)])
        due = 0.0
        positions: dict[int, int] = {}
        while not self._done_writing.is_set():
            for message in consumer.consume(500, 0.05):
                error = message.error()
                if error is None:
                    found = _found(message)
                    self.ledger.show(*found)
                    positions[found.partition] = found.offset + 1
                elif not error.retriable() and error.name() not in _BROKER_IS_AWAY:
                    self.ledger.fail(f"the consumer was told: {error}")
            if positions and time.monotonic() >= due:
                with suppress(KafkaException):  # not acknowledged: nothing to note
                    self._commit(consumer, positions)
                due = time.monotonic() + 0.1
        consumer.close()

    def _commit(self, consumer: Consumer, positions: dict[int, int]) -> None:
        offsets = [TopicPartition(self.topic, p, o) for p, o in positions.items()]
        for done in consumer.commit(offsets=offsets, asynchronous=False) or ():
            if done.error is None:
                self.ledger.commit(done.partition, done.offset)


def _found(message: Message) -> Found:
    partition, offset = message.partition(), message.offset()
    assert partition is not None
    assert offset is not None
    return Found(partition, offset, message.value() or b"")


_BROKER_IS_AWAY = ("_ALL_BROKERS_DOWN", "_TRANSPORT", "_RESOLVE", "_TIMED_OUT")


def read_all(address: str, topic: str, partitions: int, random: Random) -> list[Found]:
    """Every message of the topic, by a client of its own; partitions in any order."""
    consumer = Consumer(
        {
            "bootstrap.servers": address,
            "group.id": f"judge-{random.random()}",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "auto.offset.reset": "error",
            "check.crcs": True,
            **_PROMPT,
        }
    )
    consumer.assign([TopicPartition(topic, p, 0) for p in range(partitions)])
    found: list[Found] = []
    open_partitions, silent_since = set(range(partitions)), time.monotonic()
    while open_partitions:
        for message in consumer.consume(5000, 0.5):
            silent_since = time.monotonic()
            error = message.error()
            if error is None:
                found.append(_found(message))
            elif error.name() == "_PARTITION_EOF":
                open_partitions.discard(message.partition())
            else:
                raise AssertionError(f"the last reader was told: {error}")
        if time.monotonic() - silent_since > _PATIENCE:
            raise AssertionError(f"partitions {open_partitions} do not end")
    consumer.close()
    return found
