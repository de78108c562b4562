"""An old librdkafka, called by ctypes, in the shape that every C program uses it.

    python -m tests.interop.old.librdkafka LIBRARY HOST:PORT TOPIC

It writes three messages with each codec, reads all of them in a group, commits, and reads on behind
the committed offset as the next member. It prints the values that it read, one a line.
"""

from __future__ import annotations

import ctypes
import sys
from ctypes import POINTER, Structure, c_char_p, c_int, c_int32, c_int64, c_size_t, c_void_p

_CODECS = ("none", "gzip", "snappy", "lz4")
_PATIENCE_MS = 60_000
_PRODUCER, _CONSUMER = 0, 1
_COPY = 2  # RD_KAFKA_MSG_F_COPY
_ANY_PARTITION = -1
_FUNCTIONS = {
    "rd_kafka_conf_new": c_void_p,
    "rd_kafka_new": c_void_p,
    "rd_kafka_topic_new": c_void_p,
    "rd_kafka_topic_partition_list_new": c_void_p,
    "rd_kafka_topic_partition_list_add": c_void_p,
    "rd_kafka_err2str": c_char_p,
}


class _Message(Structure):
    """rd_kafka_message_t."""

    _fields_ = (
        ("err", c_int),
        ("topic", c_void_p),
        ("partition", c_int32),
        ("payload", c_void_p),
        ("len", c_size_t),
        ("key", c_void_p),
        ("key_len", c_size_t),
        ("offset", c_int64),
        ("private", c_void_p),
    )


class OldLibrdkafka:
    """The library at `path`, for one topic of one broker."""

    def __init__(self, path: str, address: str, topic: str) -> None:
        self._library = ctypes.CDLL(path)
        for name, result in _FUNCTIONS.items():
            getattr(self._library, name).restype = result
        self._library.rd_kafka_consumer_poll.restype = POINTER(_Message)
        self._address, self._topic = address, topic.encode()

    def write(self, codec: str, values: list[bytes]) -> None:
        """Write messages, acknowledged by all replicas."""
        settings = {"compression.codec": codec, "queue.buffering.max.ms": "50"}
        handle = self._client(_PRODUCER, settings | {"request.required.acks": "-1"})
        topic = c_void_p(self._library.rd_kafka_topic_new(handle, self._topic, None))
        for value in values:
            size = c_size_t(len(value))
            produce = self._library.rd_kafka_produce
            assert produce(topic, c_int32(0), _COPY, value, size, None, c_size_t(0), None) == 0
        assert self._library.rd_kafka_flush(handle, _PATIENCE_MS) == 0
        self._library.rd_kafka_topic_destroy(topic)
        self._library.rd_kafka_destroy(handle)

    def read(self, group: str, count: int) -> list[bytes]:
        """Read messages as a member of a group, and commit."""
        library = self._library
        settings = {"group.id": group, "enable.auto.commit": "false"}
        handle = self._client(_CONSUMER, settings | {"auto.offset.reset": "earliest"})
        library.rd_kafka_poll_set_consumer(handle)
        wanted = c_void_p(library.rd_kafka_topic_partition_list_new(1))
        library.rd_kafka_topic_partition_list_add(wanted, self._topic, _ANY_PARTITION)
        self._check(library.rd_kafka_subscribe(handle, wanted))
        found: list[bytes] = []
        while len(found) < count:
            message = library.rd_kafka_consumer_poll(handle, _PATIENCE_MS)
            assert message, f"{len(found)} of {count} messages"
            self._check(message.contents.err)
            found.append(ctypes.string_at(message.contents.payload, message.contents.len))
            library.rd_kafka_message_destroy(message)
        self._check(library.rd_kafka_commit(handle, None, 0))
        self._check(library.rd_kafka_consumer_close(handle))
        return found

    def _client(self, kind: int, settings: dict[str, str]) -> c_void_p:
        conf = c_void_p(self._library.rd_kafka_conf_new())
        why = ctypes.create_string_buffer(512)
        settings = {"bootstrap.servers": self._address, "enable.partition.eof": "false"} | settings
        for name, value in settings.items():
            known = self._library.rd_kafka_conf_set(
                conf, name.encode(), value.encode(), why, len(why)
            )
            assert known == 0, why.value
        handle = self._library.rd_kafka_new(kind, conf, why, len(why))
        assert handle, why.value
        return c_void_p(handle)

    def _check(self, error: int) -> None:
        assert error == 0, self._library.rd_kafka_err2str(error)


def main(path: str, address: str, topic: str) -> None:
    """Write, read, and read on."""
    client = OldLibrdkafka(path, address, topic)
    written = {codec: [b"%s-%d" % (codec.encode(), n) * 30 for n in range(3)] for codec in _CODECS}
    for codec, values in written.items():
        client.write(codec, values)
    group = f"{topic}-group"
    found = client.read(group, sum(map(len, written.values())))
    client.write("none", [b"next"])
    found += client.read(group, 1)
    for value in found:
        print(value.decode())


if __name__ == "__main__":
    main(*sys.argv[1:])
