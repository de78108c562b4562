"""The two encoders of an event class: the generated Python, and the compiled one.

Rules:

- The Python encoder defines the result and is always present. The compiled one takes only ordinary
  values and hands every other event to the Python encoder, so only the speed differs.
- Encoding is optimistic. The generated function raises any exception for a wrong value, and only
  then is the event examined for the wrong field. A correct event pays nothing.
- No event is encoded that every reader would refuse, because too many values are inside each other.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Generic, Literal, Protocol, TypeVar

from headworks.codec._explain import EncodeError, explain

T = TypeVar("T")
EventIn = TypeVar("EventIn", contravariant=True)

EncodedMessage = tuple[bytes, int | None, bytes | None]
"""A message's value, its time (milliseconds since 1970 UTC) or None, and its key or None."""

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
    """An encoder of the events of one class: their records, without the branch of a union.

    Both methods raise EncodeError with the field, the value, and the expected type.
    """

    def encode(self, event: EventIn, /) -> bytes:
        """Return the Avro bytes of an event, without framing."""

    def message(self, head: bytes, event: EventIn, /) -> EncodedMessage:
        """Return the message of an event; its value is `head` and the Avro bytes."""


class PythonEncoder(Generic[T]):
    """The encoder that `headworks gen` wrote for the record `name`; `schema` explains mistakes."""

    __slots__ = ("_encode", "_event_time", "_key", "_name", "_nesting", "_schema")

    def __init__(
        self,
        schema: str,
        name: str,
        encode: Callable[[T], bytes],
        event_time: Callable[[T], int] | None,
        key: Callable[[T], bytes | None] | None,
    ) -> None:
        self._schema, self._name = schema, name
        self._encode = encode
        self._event_time = event_time
        self._key = key
        # Says why readers refuse a datum. None: no look is needed; False: nobody knows yet.
        self._nesting: Callable[[bytes], str | None] | Literal[False] | None = False

    def encode(self, event: T, /) -> bytes:
        """Return the Avro bytes of an event, without framing."""
        check = self._nesting
        if check is False:
            check = self._look_at_nesting()
        try:
            value = self._encode(event)
            expected = None if check is None else check(value)
        except _ENCODING_ERRORS as error:
            raise explain(self._schema, self._name, event, error) from None
        except RecursionError:
            if check is None:
                raise  # the stack was nearly full before
            from headworks.codec._nesting import TOO_DEEP

            expected = TOO_DEEP
        if expected is not None:
            raise EncodeError(self._name.rpartition(".")[2], "", event, expected)
        return value

    def message(self, head: bytes, event: T, /) -> EncodedMessage:
        """Return the message of an event; its value is `head` and the Avro bytes."""
        value = head + self.encode(event)
        time_of, key_of = self._event_time, self._key
        return (
            value,
            None if time_of is None else time_of(event),
            None if key_of is None else key_of(event),
        )

    def _look_at_nesting(self) -> Callable[[bytes], str | None] | None:
        from headworks.codec._nesting import nesting_check

        self._nesting = nesting_check(self._schema, self._name)
        return self._nesting
