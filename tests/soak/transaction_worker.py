"""`python -m tests.soak.transaction_worker`: copies messages in transactions, until it is killed.

It reads a topic in a group, and writes what it read to the same partition of another topic. Offsets
and messages are in one transaction. Now and then it aborts one, whose messages say so. For each
commit it adds a byte to a file. After any error it ends, and its successor fences it.
"""

from __future__ import annotations

import argparse
import os
import signal
from random import Random
from typing import Any, Final

from confluent_kafka import Consumer, KafkaException, Message, Producer, TopicPartition

ABORTED = b"aborted "  # what such a message begins with
# For clients of a broker that is killed all the time: librdkafka's own backoff grows to 10 s
IMPATIENT: Final = {
    "log_level": 0,
    "reconnect.backoff.ms": 20,
    "reconnect.backoff.max.ms": 200,
}
_SECONDS = 15.0
# librdkafka waits for ever if the broker dies while offsets are sent: SIGALRM ends the worker
_MOST_SECONDS = 8
_MOST = 40  # messages of a transaction


def main() -> None:
    parser = argparse.ArgumentParser()
    for name in ("--bootstrap", "--name", "--group", "--source", "--target", "--commits"):
        parser.add_argument(name, required=True)
    parser.add_argument("--seed", type=int, required=True)
    given = parser.parse_args()
    random = Random(given.seed)
    common = {"bootstrap.servers": given.bootstrap, **IMPATIENT}
    producer = Producer({**common, "transactional.id": given.name, "linger.ms": 0})
    producer.init_transactions(_SECONDS)
    consumer = Consumer(
        {
            **common,
            "group.id": given.group,
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "session.timeout.ms": 2000,
            "heartbeat.interval.ms": 300,
        }
    )
    consumer.subscribe([given.source])
    commits = os.open(given.commits, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    try:
        while True:
            found = consumer.consume(random.randint(1, _MOST), 0.2)
            messages = [message for message in found if message.error() is None]
            if messages:
                signal.alarm(_MOST_SECONDS)
                _copy(producer, consumer, given.target, messages, abort=random.random() < 0.2)
                signal.alarm(0)
                os.write(commits, b".")
    except KafkaException as error:
        print(error, flush=True)
        os._exit(3)  # librdkafka's orderly end may wait for a broker that is killed


def _copy(
    producer: Producer, consumer: Consumer, target: str, messages: list[Message], *, abort: bool
) -> None:
    producer.begin_transaction()
    positions: dict[tuple[str, int], TopicPartition] = {}
    for message in messages:
        value: Any = message.value()
        partition: Any = message.partition()
        offset: Any = message.offset()
        topic: Any = message.topic()
        producer.produce(target, (ABORTED if abort else b"") + value, partition=partition)
        positions[topic, partition] = TopicPartition(topic, partition, offset + 1)
    producer.send_offsets_to_transaction(
        list(positions.values()), consumer.consumer_group_metadata(), _SECONDS
    )
    if not abort:
        producer.commit_transaction(_SECONDS)
        return
    producer.abort_transaction(_SECONDS)
    for topic, partition in positions:
        offsets = [m.offset() or 0 for m in messages if m.partition() == partition]
        consumer.seek(TopicPartition(topic, partition, min(offsets)))


if __name__ == "__main__":
    main()
