"""librdkafka clients that survive a fork, and consumers that check CRCs and close without a hang.

librdkafka's threads do not survive a fork. Destroying such a client in the child waits for them for
ever, or reads the memory of their stacks. Python destroys a client as soon as it collects it: as
garbage that the parent had not collected yet, or at the end of the interpreter.

Rules:

- A client that a user's process may hold across a fork is created here.
- Every consumer of ours is created here, so that none returns a record whose batch has a wrong CRC.
  librdkafka does not check it by default.
- A consumer has left its group before it closes. If librdkafka gives it partitions while it closes,
  assigning them may wait for ever for an answer (librdkafka #4884), and holds Python's lock. If the
  last commits of a cooperative member are under way then, librdkafka ends it without leaving.
- A consumer of a partition with damage closes after its last fetch was answered. After damage
  librdkafka asks for an arbitrary offset. If it learns that this is out of range while it ends, its
  thread waits for ever for a lock that it holds itself (librdkafka #4514).
- The child keeps the parent's clients for ever: it never destroys, polls, or flushes them.
- A child's own client is not destroyed at the end of the interpreter. The parent may have been
  resolving a name when it forked. The child then holds the lock of glibc's `getaddrinfo` for ever,
  and destroying a client would wait for its thread, which waits for that lock.
"""

from __future__ import annotations

import atexit
import ctypes
import math
import os
import time
import weakref
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

import confluent_kafka

from headworks._choice import check_text
from headworks.errors import UsageError

if TYPE_CHECKING:
    from confluent_kafka.admin._metadata import ClusterMetadata

_LEAVE_SECONDS = 5.0
_LEAVE_POLL_SECONDS = 0.02
_LEAVE_MESSAGES = 500  # of one poll
_ANSWER_SECONDS = 1.0  # for the last fetches of partitions with damage
_GREENLETS = ("gevent", "eventlet")
_GREENLET_PAUSE_SECONDS = 0.02
_METADATA_SECONDS = 1.0
_GREENLET_METADATA_SECONDS = 0.05  # at first; no greenlet runs meanwhile ...
_MOST_GREENLET_METADATA_SECONDS = 0.4  # ... and after many tries


@contextmanager
def _refusals(properties: Mapping[str, Any]) -> Iterator[None]:
    """Turn a property that librdkafka refuses into a UsageError."""
    for name, value in properties.items():
        check_text(name, "property")
        if isinstance(value, str):
            check_text(value, f"property {name!r} is")
    try:
        yield
    except confluent_kafka.KafkaException as error:
        raise UsageError(
            f"librdkafka refuses its properties: {error.args[0].str()}",
            fix="correct `config`, or the settings of the connection",
        ) from None


class KafkaProducer(confluent_kafka.Producer):
    """A librdkafka producer with these properties."""

    def __init__(self, properties: Mapping[str, Any]) -> None:
        with _refusals(properties):
            super().__init__(dict(properties))
        _of_this_process.add(self)


def threads_are_greenlets() -> bool:
    """Return whether gevent or eventlet has patched Python.

    All greenlets would stand still while librdkafka waits, so one of ours sleeps instead.
    """
    return (getattr(time.sleep, "__module__", "") or "").partition(".")[0] in _GREENLETS


def serve(producer: confluent_kafka.Producer, seconds: float) -> None:
    """Serve the delivery reports of a producer for up to `seconds`, in a thread of ours."""
    if threads_are_greenlets():
        producer.poll(0)
        time.sleep(min(seconds, _GREENLET_PAUSE_SECONDS))
    else:
        producer.poll(seconds)


def metadata(producer: confluent_kafka.Producer, topic: str, tries: int) -> ClusterMetadata:
    """Ask a broker about the cluster and one topic, in a thread of ours, after some other tries.

    KafkaException if none answers within a second. Where all greenlets would wait, that is 0.05 s
    at the first try, and twice as long at each further one, up to 0.4 s.
    """
    seconds = _METADATA_SECONDS
    if threads_are_greenlets():
        longer = _GREENLET_METADATA_SECONDS * 2 ** min(tries, 10)
        seconds = min(longer, _MOST_GREENLET_METADATA_SECONDS)
    found: ClusterMetadata = producer.list_topics(topic, timeout=seconds)
    return found


class KafkaConsumer(confluent_kafka.Consumer):
    """A librdkafka consumer with these properties; it checks CRCs unless they say otherwise."""

    def __init__(self, properties: Mapping[str, Any]) -> None:
        with _refusals(properties):
            super().__init__({"check.crcs": True, **properties})
        self._is_open = True
        self._is_member = False  # whether it has subscribed, and is not closed
        self._is_static = "group.instance.id" in properties
        # A classic member has its id from the broker, until it leaves. Others keep their own.
        self._is_named = properties.get("group.protocol") != "consumer"
        _of_this_process.add(self)

    def subscribe(self, *topics: Any, **callbacks: Any) -> None:
        """Do what librdkafka's consumer does."""
        super().subscribe(*topics, **callbacks)
        self._is_member = True

    def close(self) -> None:
        """Leave the group, and close; see the rules above. Messages not consumed are dropped."""
        was_member, self._is_member = self._is_member, False
        was_open, self._is_open = self._is_open, False
        try:
            lost = self._damaged_places() if was_open else []
            if was_member:
                self._leave()
            elif lost:
                self.unassign()
            self._await_answers([*lost, *lost])  # a fetch may begin during the first round
        finally:
            super().close()

    def _damaged_places(self) -> list[confluent_kafka.TopicPartition]:
        if not _with_damage:
            return []
        return [one for one in self.assignment() if (one.topic, one.partition) in _with_damage]

    def _await_answers(self, places: Iterable[confluent_kafka.TopicPartition]) -> None:
        """Wait until their leaders have answered a last request, and so all before it."""
        deadline = time.monotonic() + _ANSWER_SECONDS
        with suppress(confluent_kafka.KafkaException):  # the broker is away, and answers nothing
            for place in places:
                left = deadline - time.monotonic()
                if left <= 0:
                    break
                self.get_watermark_offsets(place, timeout=left)

    def _leave(self) -> None:
        """Serve rebalances until it has left; a static member, until nearly none can follow.

        A static member must not leave (KIP-345), and unsubscribing would say so to the group.
        """
        deadline = time.monotonic() + _LEAVE_SECONDS
        if not self._is_static:
            self.unsubscribe()
        timeout = 0.0
        while time.monotonic() < deadline:
            if self._is_static:
                self.pause(self.assignment())  # else messages arrive as long as there are any
            found = super().consume(_LEAVE_MESSAGES, timeout)
            if not found and (self._is_static or self._has_left()):
                break
            timeout = _LEAVE_POLL_SECONDS  # until librdkafka asks for what it gave meanwhile

    def _has_left(self) -> bool:
        return not (self.assignment() or (self._is_named and self.memberid()))

    def consume(self, num_messages: int = 1, timeout: float = -1) -> list[confluent_kafka.Message]:
        """Do what librdkafka's consumer does, but let other greenlets run meanwhile."""
        if not timeout or not threads_are_greenlets():
            return super().consume(num_messages, timeout)
        deadline = time.monotonic() + timeout if timeout > 0 else math.inf
        while not (found := super().consume(num_messages, 0)):
            left = deadline - time.monotonic()
            if left <= 0:
                break
            time.sleep(min(left, _GREENLET_PAUSE_SECONDS))
        return found


_with_damage: set[tuple[str, int]] = set()  # partitions, and the reports of this process alone


def note_damage(topic: str, partition: int) -> None:
    """Have consumers of this partition close with care from now on."""
    _with_damage.add((topic, partition))


_of_this_process: weakref.WeakSet[KafkaProducer | KafkaConsumer] = weakref.WeakSet()


def _keep_for_good() -> None:
    """Add one reference that is never released."""
    for client in list(_of_this_process):
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(client))
    _of_this_process.clear()


def _in_child() -> None:
    _keep_for_good()
    atexit.register(_keep_for_good)


os.register_at_fork(after_in_child=_in_child)
