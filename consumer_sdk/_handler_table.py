"""The handlers of an application by the class of their event, and those of tombstones.

Rules: a handler of `Deleted[OrderPlaced]` gets the tombstones of that event's topic. Those of a
topic without such a handler are bad messages, about which `on_poison` decides.
"""

from __future__ import annotations

from typing import Any, get_args, get_origin

from consumer_sdk._message import Deleted, Message
from consumer_sdk._retry import Handler
from headworks.codec import event_type
from headworks.errors import UsageError


def event_class_of(cls: type) -> type:
    """Return the class of an event, of `Deleted[OrderPlaced]` too; an error if it is none."""
    if get_origin(cls) is list:
        name = getattr(get_args(cls)[0], "__name__", "EventClass")
        raise UsageError("a list is no event class", fix=f"register with @app.on_batch({name})")
    found = get_args(cls)[0] if get_origin(cls) is Deleted else cls
    event_type(found)
    return found


class HandlerTable(dict[type, Handler]):
    """Handlers by class; one of tombstones has the key `Deleted[..]`."""

    def add(self, cls: type, handler: Handler) -> None:
        """Add the only handler of a class."""
        if cls in self:
            raise UsageError(
                f"{_name(cls)} has a handler already", fix="register one for each class"
            )
        self[cls] = handler

    def delays(self) -> dict[type, set[int]]:
        """Return the delays of the retry topics, in seconds, by event class."""
        found: dict[type, set[int]] = {}
        for cls, handler in self.items():
            event = event_class_of(cls)
            if event not in self:
                raise UsageError(
                    f"there is a handler of {_name(cls)}, and none of {event.__name__}",
                    fix=f"register one with @app.on({event.__name__})",
                )
            later = {delay for retry in handler.retries.values() for delay in retry.later}
            found.setdefault(event, set()).update(later)
        return found

    def deleted_topics(self) -> frozenset[str]:
        """Return the topics whose tombstones have a handler."""
        deleted = (cls for cls in self if get_origin(cls) is Deleted)
        return frozenset(event_type(event_class_of(cls)).topic for cls in deleted)

    def other(self, message: Message[Any]) -> Handler:
        """Return the handler of a message whose class has none: that of its tombstones."""
        event = message.event
        if isinstance(event, Deleted):
            topic = event_type(event.event_class).topic
            for cls, handler in self.items():
                if get_origin(cls) is Deleted and event_type(event_class_of(cls)).topic == topic:
                    return handler
        raise UsageError(
            f"there is no handler of {type(event).__name__} in the topic {message.topic}",
            fix="register one with @app.on",
        )


def _name(cls: type) -> str:
    if get_origin(cls) is Deleted:
        return f"Deleted[{get_args(cls)[0].__name__}]"
    return cls.__name__
