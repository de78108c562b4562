"""The metadata of a generated class: its record, and for an event its schema and topic.

Rules:

- All metadata is in one class attribute, `__headworks__`, so that a field may have any name.
- The schema text is verbatim the one that the class was generated from. Nothing is derived from
  Python.
- The encoder is built at the first event, not when a module is imported.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Generic, Protocol, TypeVar, runtime_checkable

from headworks.codec._encoders import EventEncoder, PythonEncoder
from headworks.codec._explain import EncodeError
from headworks.codec._program import compiled_encoder
from headworks.codec.varints import int64

__all__ = ["EncodeError", "Event", "EventType", "RecordType", "event_type"]

T = TypeVar("T")


class RecordType(Generic[T]):
    """A generated record class: its full Avro name, and the attribute of each field."""

    __slots__ = ("fields", "name")

    def __init__(self, name: str, fields: Mapping[str, str]) -> None:
        self.name = name
        self.fields = fields


class EventType(RecordType[T]):
    """A generated class whose events make messages: its record is a whole schema.

    `schema` is the schema's text, and `fingerprint` the SHA-256 of its canonical form. If it is the
    union of a topic's events, the record is its branch of number `branch`. The attribute `branch`
    is that number as Avro's bytes, which come before the record's, and is else empty. Events go to
    `topic`, and their schema is registered under `subject`. `event_time` and `key` return an
    event's time (milliseconds since 1970 UTC) and message key; they are None if the schema declares
    none. `types` holds the classes of all named types in the schema. `python_encoder` runs the
    generated code, and `encoder` is the encoder in use. Neither encodes the branch.
    """

    __slots__ = (
        "_encoder",
        "_types",
        "branch",
        "event_time",
        "fingerprint",
        "key",
        "python_encoder",
        "schema",
        "topic",
    )

    def __init__(
        self,
        name: str,
        fields: Mapping[str, str],
        *,
        schema: str,
        fingerprint: str,
        topic: str,
        encode: Callable[[T], bytes],
        event_time: Callable[[T], int] | None,
        key: Callable[[T], bytes | None] | None,
        types: Callable[[], Mapping[str, type]],
        branch: int | None = None,
    ) -> None:
        super().__init__(name, fields)
        self.schema = schema
        self.fingerprint = fingerprint
        self.topic = topic
        self.event_time = event_time
        self.key = key
        self.python_encoder: PythonEncoder[T] = PythonEncoder(schema, name, encode, event_time, key)
        self.branch = b"" if branch is None else int64(branch)
        self._encoder: EventEncoder[T] | None = None
        self._types = types

    @property
    def subject(self) -> str:
        """The registry subject of the topic's values."""
        return f"{self.topic}-value"

    @property
    def types(self) -> Mapping[str, type]:
        """The generated class of every record and enum of the schema, by full name."""
        return self._types()

    @property
    def encoder(self) -> EventEncoder[T]:
        """The compiled encoder if there is one and the classes are unchanged, else the Python one.

        Set it to `python_encoder` to measure or test that one. A producer keeps the encoder that
        it resolved first.
        """
        if self._encoder is None:
            compiled = compiled_encoder(
                self.schema, self.name, self.types, self.python_encoder, self.key
            )
            self._encoder = compiled or self.python_encoder
        return self._encoder

    @encoder.setter
    def encoder(self, encoder: EventEncoder[T]) -> None:
        self._encoder = encoder

    def encode(self, event: T) -> bytes:
        """Return the Avro bytes of `event`, without framing.

        Raises EncodeError with the field, the value, and the expected type.
        """
        return self.branch + (self._encoder or self.encoder).encode(event)


@runtime_checkable
class Event(Protocol):
    """An instance of a generated class that is a whole schema, or a branch of one."""

    __headworks__: ClassVar[EventType[Any]]


def event_type(of: object) -> EventType[Any]:
    """Return the EventType of an event or of its class; TypeError if it is neither."""
    found = getattr(of, "__headworks__", None)
    if not isinstance(found, EventType):
        what = of.__name__ if isinstance(of, type) else type(of).__name__
        raise TypeError(f"{what} is not a class that `headworks gen` made of a whole schema")
    return found
