"""The base of generated event classes: encoders, the metadata of a class, and events as dicts.

Rules: imports only the standard library and `headworks.errors`, because every producer process
pays for it. The schema model and the C extension are imported at the first event.
"""

from headworks.codec._event import EncodeError, Event, EventType, RecordType, event_type
from headworks.codec._plain import from_dict, from_json, to_dict, to_json

__all__ = [
    "EncodeError",
    "Event",
    "EventType",
    "RecordType",
    "event_type",
    "from_dict",
    "from_json",
    "to_dict",
    "to_json",
]
