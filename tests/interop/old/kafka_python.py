"""An old kafka-python: `python kafka_python.py FOLDER HOST:PORT TOPIC`, with the package in FOLDER.

It creates the topic, writes with each codec that it has without another package, reads in a group,
commits, and deletes the topic. It prints the values that it read, one a line.
"""

from __future__ import annotations

import sys


def main(address: str, topic: str) -> None:
    """Do all of it, and raise AssertionError if something is not as it must be."""
    from kafka import KafkaConsumer, KafkaProducer
    from kafka.admin import KafkaAdminClient, NewTopic
    from kafka.structs import OffsetAndMetadata, TopicPartition

    place, patience = TopicPartition(topic, 0), 60
    admin = KafkaAdminClient(bootstrap_servers=address)
    admin.create_topics([NewTopic(topic, 1, 1, topic_configs={"retention.ms": "-1"})])
    for codec in (None, "gzip"):
        producer = KafkaProducer(bootstrap_servers=address, compression_type=codec, acks="all")
        values = [b"%s-%d" % (str(codec).encode(), number) for number in range(3)]
        sent = [producer.send(topic, value, b"k", headers=[("h", b"v")]) for value in values]
        assert [one.get(patience).partition for one in sent] == [0] * 3
        producer.close()
    consumer = KafkaConsumer(
        topic,
        bootstrap_servers=address,
        group_id=topic,
        auto_offset_reset="earliest",
        enable_auto_commit=False,
        consumer_timeout_ms=patience * 1000,
    )
    for count, message in enumerate(consumer, 1):
        assert (message.key, message.headers) == (b"k", [("h", b"v")])
        print(message.value.decode())
        if count == 6:
            break
    consumer.commit({place: OffsetAndMetadata(4, "a note")})
    assert consumer.committed(place) == 4
    assert consumer.end_offsets([place]) == {place: 6}
    assert consumer.offsets_for_times({place: 0})[place].offset == 0
    consumer.close()
    assert (topic, "consumer") in admin.list_consumer_groups()
    assert admin.list_consumer_group_offsets(topic)[place].metadata == "a note"
    admin.delete_topics([topic])


if __name__ == "__main__":
    sys.path.insert(0, sys.argv[1])
    main(*sys.argv[2:])
