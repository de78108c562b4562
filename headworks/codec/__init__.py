"""The base of generated event classes: varints, encoders, and the metadata of a class.

Rules: imports only the standard library and `headworks.errors`, because every producer process
pays for it. The schema model and the C extension are imported at the first event.
"""

from headworks.codec._event import EncodeError, Event, EventType, RecordType, event_type

__all__ = ["EncodeError", "Event", "EventType", "RecordType", "event_type"]
