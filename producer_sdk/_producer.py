"""The producer: typed events into librdkafka's queue, without ever waiting for a broker.

Rules:

- A wrong event raises in the caller. Broker trouble never raises: `send` returns False, and counts
  the dropped message by its reason.
- Every counted message is resolved: attempted = delivered + failed + dropped + still queued.
- Memory is bounded by messages and by bytes. When the queue is full, a message is dropped, waits up
  to a limit, or is spilled to bounded files (`WhenFull`).
- Two daemon threads serve delivery reports and publish the audit counts (`_transport`). A forked
  child starts its own at its first `send`; the messages that the parent queued stay the parent's.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple, Self

from headworks._audit_counting.tally import LatestWindow
from headworks._audit_counting.window_counts import WindowCounts
from headworks._choice import choice
from headworks._in_thread import in_thread
from headworks._kafka.bootstrap import BootstrapServers
from headworks._settings import resolve
from headworks._wire import prefix
from headworks.codec import Event, event_type
from headworks.codec._encoders import EncodedMessage
from headworks.errors import UsageError
from headworks.registry_client._schema_ids import EventSchemaIds
from producer_sdk._acknowledgement import Acknowledgement, AsyncAcknowledgement
from producer_sdk._context import (
    Headers,
    check_headers,
    check_limits,
    check_partition,
    checked_classes,
    checked_name,
    default_state_dir,
    headers_of,
    key_of,
    tracing,
)
from producer_sdk._full_queue import TELL_WHEN_FULL_MS, FullQueueError
from producer_sdk._interceptors import Interceptor, Interceptors
from producer_sdk._outgoing_message import OutgoingMessage
from producer_sdk._process_end import close_with_worker, open_producers
from producer_sdk._totals import NO_EVENTS, OnLoss, ProducerTotals
from producer_sdk._transport import OnDelivery, Transport, TransportConfig

_TURN_SECONDS = 0.5  # how long a thread of an event loop may work before it looks for a cancel


class WhenFull(StrEnum):
    """The policy of `send` when the queue is full.

    DROP_NEW drops the new event. BLOCK waits up to `block_ms`, and then drops it. SPILL keeps up to
    `spill_bytes` in files of `state_dir`, until the broker takes them.
    """

    DROP_NEW = "drop-new"
    BLOCK = "block"
    SPILL = "spill"


class _Prepared(NamedTuple):
    """The parts of an event class that every send uses."""

    message: Callable[[bytes, Any], EncodedMessage]  # encodes an event
    prefix: bytes  # magic byte, schema id, and branch of a union
    topic: str
    latest: LatestWindow[WindowCounts]  # the counts of its last event


class Producer:
    """Sends typed events; safe to share between threads. Close it, or use it as a context manager.

    `bootstrap` and `registry` default to the settings of that name. With `zookeeper` instead of
    `bootstrap`, the brokers are those registered there. `application` names this program in the
    audit. The schema ids of `events` are looked up now. Those of other classes are looked up at
    their first `send`, which waits `registry_timeout` seconds at most. `state_dir` holds the
    counters, spills, and cached schema ids; processes may share it.

    Every message carries `headers`, and every event passes the `interceptors`. After a loss,
    another thread logs it and gives the totals to `on_loss`, at most once a second. `config` adds
    properties of librdkafka. `clock` (seconds since 1970) gives the time of events without one.

    Raises UsageError if a schema of `events` is not registered, and UnreachableError if the
    registry does not answer and no earlier run cached the id.
    """

    _last_totals = NO_EVENTS  # of the transport that was closed last

    def __init__(
        self,
        bootstrap: str | None = None,
        registry: str | None = None,
        *,
        application: str,
        zookeeper: str | None = None,
        events: tuple[type, ...] = (),
        state_dir: Path | str | None = None,
        when_full: WhenFull = WhenFull.DROP_NEW,
        block_ms: int = 1000,
        spill_bytes: int = 1 << 30,
        queue_messages: int = 100_000,
        queue_bytes: int = 64 << 20,
        audit_every: float = 10.0,
        auto_register: bool = False,
        registry_timeout: float = 0.5,
        close_timeout: float = 10.0,
        headers: Headers | None = None,
        interceptors: Sequence[Interceptor] = (),
        on_loss: OnLoss | None = None,
        config: Mapping[str, Any] | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        when_full = choice(WhenFull, when_full, "when_full")
        check_limits(0, block_ms=block_ms, close_timeout=close_timeout)
        check_limits(1, queue_messages=queue_messages, queue_bytes=queue_bytes)
        check_limits(1, spill_bytes=spill_bytes)
        check_limits(0.001, audit_every=audit_every, registry_timeout=registry_timeout)
        self._headers, self._trace = check_headers(headers), tracing()
        application, folder = checked_name(application), Path(state_dir or default_state_dir())
        self._brokers = BootstrapServers(bootstrap, zookeeper)
        address = resolve("registry", registry)
        self._ids = EventSchemaIds(address, folder, registry_timeout, auto_register=auto_register)
        self._wait_ms, self._clock = block_ms if when_full is WhenFull.BLOCK else 0, clock
        self._close_timeout = close_timeout
        self._interceptors = Interceptors(interceptors) if interceptors else None
        spills = when_full is WhenFull.SPILL
        client = {
            **self._brokers.client(),
            **_client_properties(application, queue_messages, queue_bytes, spills=spills),
            **(config or {}),
        }
        self._config = TransportConfig(
            *(client, folder, application, self._ids, audit_every),
            *(spill_bytes if spills else 0, on_loss),
        )
        self._prepared: dict[type, _Prepared] = {}
        self._deleted: dict[type, LatestWindow[WindowCounts]] = {}  # the counts of tombstones
        self._lock = threading.Lock()  # guards the two attributes below
        self._transport: Transport | None = None  # None before the first send after a fork
        self._closed = False
        try:
            for cls in checked_classes(events):
                self._prepare(cls, patient=True)
            self._start()
        except BaseException:
            self._brokers.close()
            raise
        open_producers.add(self)

    def send(
        self,
        event: Event,
        *,
        key: bytes | None = None,
        headers: Headers | None = None,
        partition: int | None = None,
    ) -> bool:
        """Queue an event; return False if it was dropped, and counted as dropped.

        `key` overrides the key that the schema names, and `partition` the one that follows from it;
        such a message is never spilled. Raises EncodeError if the event does not fit its schema,
        and UsageError if that is not registered or the producer is closed.
        """
        return self._enqueue(event, key, headers, None, self._wait_ms, partition)

    async def asend(
        self,
        event: Event,
        *,
        key: bytes | None = None,
        headers: Headers | None = None,
        partition: int | None = None,
    ) -> bool:
        """Do what `send` does, but let the event loop run while the queue is full.

        A task that is cancelled meanwhile has sent nothing; the event is counted as dropped.
        """
        return await self._asend(event, key, headers, None, partition)

    def send_and_wait(
        self,
        event: Event,
        timeout: float,
        *,
        key: bytes | None = None,
        headers: Headers | None = None,
        partition: int | None = None,
    ) -> tuple[int, int]:
        """Send an event and wait for the acknowledgement; return its (partition, offset).

        Raises DeliveryError if it is not acknowledged within `timeout` seconds. The event may still
        be delivered later.
        """
        waiting = Acknowledgement()
        queued = self._enqueue(event, key, headers, waiting.report, self._wait_ms, partition)
        return waiting.wait(timeout, queued=queued)

    async def asend_and_wait(
        self,
        event: Event,
        timeout: float,
        *,
        key: bytes | None = None,
        headers: Headers | None = None,
        partition: int | None = None,
    ) -> tuple[int, int]:
        """Do what `send_and_wait` does, but let the event loop run meanwhile."""
        waiting = AsyncAcknowledgement()
        queued = await self._asend(event, key, headers, waiting.report, partition)
        return await waiting.wait(timeout, queued=queued)

    def delete(self, cls: type[Event], key: bytes | str, *, headers: Headers | None = None) -> bool:
        """Queue a tombstone: a message of `cls`'s topic with this key and no value.

        A compacted topic then forgets the key. Consumers read it as `Deleted`. Return False if it
        was dropped, and counted as dropped. Its time is now.
        """
        topic = event_type(cls).topic
        carried = headers_of(self._headers, self._trace, check_headers(headers))
        now = int(self._clock() * 1000)
        message = OutgoingMessage(topic, None, key_of(key), now, carried)
        latest = self._deleted.setdefault(cls, LatestWindow())
        return self._start().enqueue_reported(message, None, self._wait_ms, latest, spillable=True)

    def flush(self, timeout: float) -> int:
        """Wait up to `timeout` seconds for an empty queue; return the number of messages left."""
        return self._start().flush(timeout)

    async def aflush(self, timeout: float) -> int:
        """Do what `flush` does, but let the event loop run meanwhile.

        A task that is cancelled ends within half a second.
        """
        deadline = time.monotonic() + timeout
        while True:
            turn = min(max(0.0, deadline - time.monotonic()), _TURN_SECONDS)
            left = await in_thread(self.flush, turn)
            if not left or time.monotonic() >= deadline:
                return left

    def counts(self) -> dict[str, int]:
        """Return the counts that are not published to the audit yet, by outcome."""
        return self._start().counters.unpublished()

    @property
    def totals(self) -> ProducerTotals:
        """The events by outcome since this process made the producer; for metrics."""
        transport = self._transport
        return self._last_totals if transport is None else transport.totals

    def close(self) -> int:
        """Deliver the queue, publish the counts, and stop; return the number of messages left.

        Waits at most `close_timeout` seconds. Counts that could not be published stay in the state
        folder, and the next producer there publishes them. Under WhenFull.SPILL, the messages left
        stay there as well, and the next producer sends them.
        """
        with self._lock:
            transport, self._transport = self._transport, None
            self._closed = True
        open_producers.discard(self)
        left = 0
        if transport is not None:
            left = transport.stop(self._close_timeout)
            self._last_totals = transport.totals
        self._brokers.close()
        return left

    async def aclose(self) -> int:
        """Do what `close` does, but let the event loop run meanwhile; also if it is cancelled."""
        return await in_thread(self.close)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def _asend(
        self,
        event: Event,
        key: bytes | None,
        headers: Headers | None,
        on_delivery: OnDelivery | None,
        partition: int | None,
    ) -> bool:
        if event.__class__ not in self._prepared:
            await in_thread(self._prepare, event.__class__)
        wait_ms = TELL_WHEN_FULL_MS if self._wait_ms else 0
        try:
            return self._enqueue(event, key, headers, on_delivery, wait_ms, partition)
        except FullQueueError as error:
            waiting = error.waiting
        return await waiting.wait(self._wait_ms)

    def _enqueue(
        self,
        event: object,
        key: bytes | None,
        headers: Headers | None,
        on_delivery: OnDelivery | None,
        wait_ms: int,
        partition: int | None,
    ) -> bool:
        """Encode, count, and queue an event.

        Every event takes this path, so it is written for speed: calls pass no names or defaults.
        """
        hooks = self._interceptors
        if hooks is not None:
            event = hooks.before_encode(event)
        cls = event.__class__
        message, head, topic, latest = self._prepared.get(cls) or self._prepare(cls)
        value, timestamp, own_key = message(head, event)
        if not timestamp:  # librdkafka takes 0 for none
            timestamp = int(self._clock() * 1000)
        if key is None:
            key = own_key
        elif key.__class__ is not bytes:
            key = key_of(key)
        if headers is not None:
            check_headers(headers)
        if partition is not None:
            check_partition(partition)
        transport = self._transport or self._start()
        carried = headers_of(self._headers, self._trace, headers)
        if hooks is None:
            if on_delivery is None and partition is None:
                return transport.enqueue(topic, value, key, timestamp, carried, wait_ms, latest)
            one = OutgoingMessage(topic, value, key, timestamp, carried, partition)
            return transport.enqueue_reported(one, on_delivery, wait_ms, latest, spillable=False)
        one = OutgoingMessage(topic, value, key, timestamp, carried, partition)
        callback = hooks.reporter(event, topic, on_delivery)
        # A message that somebody waits for, or of a given partition, is never spilled.
        free = on_delivery is None and partition is None
        try:
            taken = transport.enqueue_reported(one, callback, wait_ms, latest, spillable=free)
        except FullQueueError as error:
            error.waiting.ended = partial(hooks.after_enqueue, event)
            raise
        hooks.after_enqueue(event, taken=taken)
        return taken

    def _prepare(self, cls: type, *, patient: bool = False) -> _Prepared:
        kind, schema_id = event_type(cls), self._ids.find(cls, patient=patient)
        head, message = prefix(schema_id) + kind.branch, kind.encoder.message
        found = self._prepared[cls] = _Prepared(message, head, kind.topic, LatestWindow())
        return found

    def _start(self) -> Transport:
        """Return the transport, and start one if need be; UsageError if the producer is closed."""
        with self._lock:
            if self._closed:
                raise UsageError("the producer is closed", fix="send before close, or make another")
            if self._transport is None:
                self._transport = Transport(self._config)
                close_with_worker(self)
            return self._transport

    def _after_fork(self) -> None:
        """Leave the transport to the parent, in a forked child."""
        self._lock = threading.Lock()
        self._transport = None


def _client_properties(
    application: str, queue_messages: int, queue_bytes: int, *, spills: bool
) -> dict[str, Any]:
    """Return the properties of librdkafka that every producer has; `config` may override them."""
    return {
        "client.id": application,
        "enable.idempotence": True,
        "compression.type": "zstd",
        "partitioner": "murmur2_random",
        "linger.ms": 20,
        "batch.num.messages": 10_000,
        "queue.buffering.max.messages": queue_messages,
        "queue.buffering.max.kbytes": max(1, queue_bytes // 1024),
        "log_level": 2,
        # With a spill nothing times out: the broker may be away as long as the disk has room.
        **({"message.timeout.ms": 0} if spills else {}),
    }
