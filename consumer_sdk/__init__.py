"""The consumer SDK: an iterator over messages, decoded to generated classes.

Only this module is public. Behind it:

- `_consumer`: the iterating member of a group. `_message`: the messages that it yields.
- `_membership`: the interface of both kinds of group, and groups that a broker balances.
- `_group_config`: the settings of a member. `_zookeeper_group`: groups without a coordinator.
- `_decode`, `_generated_decoder`, `_conversions`, `_default_values`: message values to events.
- `_offsets`: ends, times, and offsets to start at or to rewind to.
- `_poison`: messages that cannot be decoded, and the dead-letter topic.
- `_audit_tier`: the group as a tier of the audit. `_jsonable`: decoded values as JSON.

Rules: imports only `headworks` and third parties, because it runs in a user's process. A message
counts as processed when the application asks for the next one. A crash therefore repeats a message
and never loses one.
"""

from consumer_sdk._consumer import Consumer
from consumer_sdk._decode import DecodeError, Decoder
from consumer_sdk._message import Message, Partition
from consumer_sdk._poison import OnPoison, PoisonMessageError

__all__ = [
    "Consumer",
    "DecodeError",
    "Decoder",
    "Message",
    "OnPoison",
    "Partition",
    "PoisonMessageError",
]
