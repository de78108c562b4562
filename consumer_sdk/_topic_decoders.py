"""Raw messages to messages with events: one decoder for each topic that a consumer meets.

Rules: a topic of a generated class is decoded to that class, and any other topic to dicts. A
message without a value, a tombstone, is a `Deleted` if the application reads these, else bad.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from copy import copy
from typing import Any

import confluent_kafka

from consumer_sdk._decode import BAD_DATA, DecodeError, Decoder, Known
from consumer_sdk._message import Deleted, Message, new_message
from headworks._kafka.headers import message_headers
from headworks._native import messages
from headworks._wire import HEADER_SIZE
from headworks.codec import EventType, event_type
from headworks.errors import CorruptError
from headworks.registry_client import RegistryClient

_NO_SCHEMA = 0
_NONE: dict[bytes, Known] = {}


def topics_of(events: Sequence[type], topics: Sequence[str]) -> list[str]:
    """Return the topics of event classes, or `topics` if there are no classes."""
    return list(dict.fromkeys(event_type(cls).topic for cls in events)) or list(topics)


class TopicDecoders:
    """Decodes the messages of one thread; `topics` are those of `events`.

    The messages of a retry topic are decoded as those of the topic that `sources` gives for it.
    """

    def __init__(
        self,
        registry: str,
        events: Sequence[type],
        sources: Mapping[str, str],
        *,
        tombstones: bool,
    ) -> None:
        self._registry = RegistryClient(registry)
        self._sources = sources
        self._tombstones = tombstones
        self.deleted_topics: frozenset[str] | None = None  # whose tombstones are read; None: all
        kinds: dict[str, list[EventType[Any]]] = {}
        for cls in events:
            kinds.setdefault(event_type(cls).topic, []).append(event_type(cls))
        # The class of a tombstone's event: the first of its topic.
        self._classes = {event_type(cls).topic: cls for cls in reversed(events)}
        self._decoders = {
            topic: Decoder(self._registry, topic, *of_topic) for topic, of_topic in kinds.items()
        }
        # The schemas of each topic's decoder that need no question to the registry.
        self._known: dict[str | None, dict[bytes, Known]] = {}
        self.topics = list(kinds)
        self.known_message = self._reader()

    def copy(self) -> TopicDecoders:
        """Return decoders for another thread."""
        other = copy(self)
        other._decoders, other._known = dict(self._decoders), dict(self._known)
        other.known_message = other._reader()
        return other

    def _reader(self) -> Callable[[confluent_kafka.Message], Message[Any] | None]:
        """Return what does the work of `message` if it need not ask the registry.

        It returns None if it would have to, and for a bad message.
        """
        if messages is None:
            return self._known_message
        try:
            return messages.MessageReader(
                confluent_kafka.Message, Message, self._known, self._known_message
            ).read
        except TypeError:  # another release of the client
            return self._known_message

    def message(self, raw: confluent_kafka.Message) -> Message[Any]:
        """Return a message with its event; DecodeError or FramingError if it has none."""
        topic, value = raw.topic() or "", raw.value()
        try:
            headers = message_headers(raw)
        except CorruptError as error:
            raise DecodeError(error.message) from None
        found = self._decoders.get(topic)
        if found is None:
            source = self._sources.get(topic, topic)
            found = self._decoders.get(source) or Decoder(self._registry, source)
            self._decoders[topic] = found
        self._known[topic] = found.known
        if value is None:
            event, schema_id, version = self._deleted(topic, raw.key()), _NO_SCHEMA, None
        else:
            event, schema_id, version = found.decode_with_version(value)
        return new_message(
            event,
            topic,
            raw.partition(),
            raw.offset(),
            raw.timestamp()[1],
            raw.key(),
            tuple(headers),
            schema_id,
            version,
        )

    def _known_message(self, raw: confluent_kafka.Message) -> Message[Any] | None:
        """Return what `message` does if it need not ask the registry, and the message is good.

        It is `message` without its calls. Compiled, it defines what `_messages.c` does.
        """
        topic, value = raw.topic(), raw.value()
        if value is None:
            return self.message(raw) if self._reads_deleted(topic or "") else None
        found = self._known.get(topic, _NONE).get(value[:HEADER_SIZE])
        if found is None:
            return None
        decode, schema_id, version = found
        try:
            event = decode(value, HEADER_SIZE)
            headers = message_headers(raw)
        except (*BAD_DATA, CorruptError):
            return None
        return new_message(
            event,
            topic,
            raw.partition(),
            raw.offset(),
            raw.timestamp()[1],
            raw.key(),
            tuple(headers),
            schema_id,
            version,
        )

    def _reads_deleted(self, topic: str) -> bool:
        topics = self.deleted_topics
        return self._tombstones and (topics is None or self._sources.get(topic, topic) in topics)

    def _deleted(self, topic: str, key: bytes | None) -> Deleted[Any]:
        if not self._reads_deleted(topic):
            raise DecodeError(
                "it has no value: it is a tombstone, which deletes its key",
                fix="read tombstones as Deleted: with tombstones=True, or by a handler of"
                " Deleted[EventClass]",
            )
        return Deleted(self._classes.get(self._sources.get(topic, topic), dict), key)
