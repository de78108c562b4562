"""Typed events out of topics: an iterator over messages, decoded to the classes asked for.

- `consumer`: Consumer, the group member that iterates.
- `joining`, `membership`: the two ways to be in a group.
- `decentralised`: the group that balances itself, over ZooKeeper.
- `message`: what it gives: events and where they lay.
- `decode`: message values to typed events, or to dicts.
- `places`: where to start and where to rewind to: ends, times, offsets.
- `poison`: what cannot be decoded, and the dead-letter topic.
- `audit_tier`: a group that counts itself into the audit.

Rules: imports only the kernel and third parties, because it runs in a user's own process; a
message counts as processed when the next one is asked for, so that a crash repeats it and never
loses it.
"""

from consumer_sdk.consumer import Consumer
from consumer_sdk.decode import DecodeError, Decoder
from consumer_sdk.message import Message, Partition
from consumer_sdk.poison import OnPoison, PoisonMessageError

__all__ = [
    "Consumer",
    "DecodeError",
    "Decoder",
    "Message",
    "OnPoison",
    "Partition",
    "PoisonMessageError",
]
