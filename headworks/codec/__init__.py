"""What generated event classes run on: varints, encoders, and what a class knows of itself.

Rules: imports nothing but the standard library and `headworks.errors` (the schema model, and what
is compiled, only at the first event), because every producer process pays for it.
"""

from headworks.codec._event import EncodeError, Event, EventType, RecordType, event_type

__all__ = ["EncodeError", "Event", "EventType", "RecordType", "event_type"]
