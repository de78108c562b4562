"""Typed events out of topics: an iterator over messages, decoded to the classes asked for.

- `consumer`: Consumer, the group member that iterates.
- `decode`: message values to typed events, or to dicts.

Rules: imports only the kernel and third parties, because it runs in a user's own process; a
message counts as processed when the next one is asked for, so that a crash repeats it and never
loses it.
"""

from consumer_sdk.consumer import Consumer, Message, OnPoison, PoisonMessageError
from consumer_sdk.decode import DecodeError, Decoder

__all__ = ["Consumer", "DecodeError", "Decoder", "Message", "OnPoison", "PoisonMessageError"]
