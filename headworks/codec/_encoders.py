"""The two forms of an event class's encoder: the generated Python, and the compiled one.

Rules:

- The Python form is the truth, and is always there. The compiled one takes only ordinary values and
  hands every other event to the Python form, so nothing but speed tells them apart.
- Encoding is optimistic: the generated function raises whatever Python raises for a wrong value,
  and only then is the value examined, to say which field is wrong. A right event pays nothing.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Generic, Protocol, TypeVar

from headworks.codec._explain import explain

__all__ = ["EncodedMessage", "EventEncoder", "PythonEncoder"]

T = TypeVar("T")
EventIn = TypeVar("EventIn", contravariant=True)

EncodedMessage = tuple[bytes, int | None, bytes | None]
"""A message's value, its time (milliseconds since 1970 UTC) and its key; None if it has none."""

_ENCODING_ERRORS = (
    TypeError,
    ValueError,
    AttributeError,
    KeyError,
    IndexError,
    OverflowError,
    struct.error,
)


class EventEncoder(Protocol[EventIn]):
    """What encodes the events of one class.

    Both raise EncodeError, naming the field, the value and the expected type.
    """

    def encode(self, event: EventIn, /) -> bytes:
        """The Avro bytes of an event, without framing."""

    def message(self, head: bytes, event: EventIn, /) -> EncodedMessage:
        """The message of an event, with `head` before the Avro bytes of its value."""


class PythonEncoder(Generic[T]):
    """What `headworks gen` wrote for a class; `schema` is the text, to explain what is wrong."""

    __slots__ = ("_encode", "_event_time", "_key", "_schema")

    def __init__(
        self,
        schema: str,
        encode: Callable[[T], bytes],
        event_time: Callable[[T], int] | None,
        key: Callable[[T], bytes | None] | None,
    ) -> None:
        self._schema = schema
        self._encode = encode
        self._event_time = event_time
        self._key = key

    def encode(self, event: T, /) -> bytes:
        """The Avro bytes of an event, without framing."""
        try:
            return self._encode(event)
        except _ENCODING_ERRORS as error:
            raise explain(self._schema, event, error) from None

    def message(self, head: bytes, event: T, /) -> EncodedMessage:
        """The message of an event, with `head` before the Avro bytes of its value."""
        try:
            value = head + self._encode(event)
        except _ENCODING_ERRORS as error:
            raise explain(self._schema, event, error) from None
        time_of, key_of = self._event_time, self._key
        return (
            value,
            None if time_of is None else time_of(event),
            None if key_of is None else key_of(event),
        )
