"""librdkafka clients that a fork does not hurt.

librdkafka's threads do not survive a fork. To destroy such a client in the child waits for them
for ever, or reads the memory that their stacks had; and Python destroys it as soon as it collects
it, be it garbage that the parent had not collected yet, or at the end of the interpreter.

Rules:

- Every client that a user's process may hold over a fork is made here.
- In the child, what the parent had is kept for good: it is never destroyed, polled or flushed.
- A child's own client is not destroyed at the end of the interpreter. The parent may have been
  resolving a name when it forked; the lock of glibc's `getaddrinfo` is then held for ever in the
  child, and to destroy a client waits for its thread that waits there.
"""

from __future__ import annotations

import atexit
import ctypes
import os
import weakref
from collections.abc import Mapping
from typing import Any

import confluent_kafka

__all__ = ["KafkaConsumer", "KafkaProducer"]


class KafkaProducer(confluent_kafka.Producer):
    """A librdkafka producer with these properties."""

    def __init__(self, properties: Mapping[str, Any]) -> None:
        super().__init__(dict(properties))
        _of_this_process.add(self)


class KafkaConsumer(confluent_kafka.Consumer):
    """A librdkafka consumer with these properties."""

    def __init__(self, properties: Mapping[str, Any]) -> None:
        super().__init__(dict(properties))
        _of_this_process.add(self)


_of_this_process: weakref.WeakSet[KafkaProducer | KafkaConsumer] = weakref.WeakSet()


def _keep_for_good() -> None:
    """One reference more than anyone will ever give back."""
    for client in list(_of_this_process):
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(client))
    _of_this_process.clear()


def _in_child() -> None:
    _keep_for_good()
    atexit.register(_keep_for_good)


os.register_at_fork(after_in_child=_in_child)
