"""Typed events out of topics: an iterator over messages, decoded to the classes asked for.

Public is this module alone. Behind it:

- `_consumer`: the group member that iterates. `_message`: what it yields.
- `_membership`: the two kinds of group. `_group_config`: how a consumer joins one.
- `_zookeeper_group`: the group that balances itself, over ZooKeeper.
- `_decode`, `_generated_decoder`, `_conversions`, `_default_values`: message values to events.
- `_offsets`: where to start, and where to rewind to: ends, times, offsets.
- `_poison`: messages that cannot be decoded, and the dead-letter topic.
- `_audit_tier`: a group that counts itself into the audit. `_jsonable`: events as JSON values.

Rules: imports only `headworks` and third parties, because it runs in a user's own process; a
message counts as processed when the next one is asked for, so that a crash repeats it and never
loses it.
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
