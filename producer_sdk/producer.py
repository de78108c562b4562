"""The producer: typed events into librdkafka's queue, without ever waiting for a broker.

Rules:

- A wrong event raises, at once and in the caller; broker trouble never does: `send` answers False
  and counts what it dropped and why.
- Everything counted is resolved: attempted = delivered + failed + dropped + still queued.
- Memory is bounded by messages and bytes; what does not fit is dropped, or waited for up to a
  limit (`WhenFull`).
- One daemon thread serves delivery reports and publishes the audit counts. A forked child starts
  its own of everything at its first `send`; what the parent had queued stays the parent's.
"""

from __future__ import annotations

import asyncio
import atexit
import logging
import os
import signal
import threading
import time
import weakref
from collections.abc import Callable, Mapping
from enum import StrEnum
from pathlib import Path
from types import FrameType, TracebackType
from typing import Any, NamedTuple

import confluent_kafka
from confluent_kafka import KafkaError, KafkaException

from headworks.audit import AUDIT_TOPIC, WINDOW_MS
from headworks.audit.counters import BROKER_ERROR, QUEUE_FULL, TOO_LARGE, CounterFile
from headworks.audit.reporting import Reporter
from headworks.broker_client import broker_client
from headworks.codec import EventType, event_type
from headworks.errors import HeadworksError, UsageError
from headworks.registry_client.schema_ids import SchemaIds
from headworks.settings import resolve
from headworks.wire import prefix

__all__ = ["DeliveryError", "Producer", "WhenFull", "close_on_sigterm"]

Headers = Mapping[str, bytes | str]
OnDelivery = Callable[[object, object], None]
_log = logging.getLogger("headworks.producer")
_POLL = 0.1


class WhenFull(StrEnum):
    """What `send` does when the queue is full: drop the new event, or wait up to `block_ms`."""

    DROP_NEW = "drop-new"
    BLOCK = "block"


class DeliveryError(HeadworksError):
    """`send_and_wait` did not get the broker's acknowledgement."""


class _Prepared(NamedTuple):
    """What is needed of an event class for each send."""

    encode: Callable[[Any], bytes]
    prefix: bytes
    topic: str
    event_time: Callable[[Any], int] | None
    key: Callable[[Any], bytes | None] | None


class Producer:
    """Sends typed events; safe to share between threads. Close it, or use it as a context manager.

    `bootstrap` and `registry` default to the settings of that name; `application` names this
    program in the audit. `events` are classes whose schema ids are found at once instead of at
    their first `send`. `state_dir` holds the counters and the known schema ids; processes may share
    it. `config` adds properties of librdkafka.

    Raises UsageError for a schema of `events` that is not registered, and UnreachableError if the
    registry does not answer and the id is not known from an earlier run.
    """

    def __init__(
        self,
        bootstrap: str | None = None,
        registry: str | None = None,
        *,
        application: str,
        events: tuple[type, ...] = (),
        state_dir: Path | None = None,
        when_full: WhenFull = WhenFull.DROP_NEW,
        block_ms: int = 1000,
        queue_messages: int = 100_000,
        queue_bytes: int = 64 << 20,
        audit_every: float = 10.0,
        auto_register: bool = False,
        close_timeout: float = 10.0,
        config: Mapping[str, Any] | None = None,
    ) -> None:
        self._state_dir = state_dir or _default_state_dir()
        self._application = application
        self._ids = SchemaIds(
            resolve("registry", registry), self._state_dir, auto_register=auto_register
        )
        self._wait_ms = block_ms if when_full is WhenFull.BLOCK else 0
        self._queue_messages = queue_messages
        self._audit_every = audit_every
        self._close_timeout = close_timeout
        self._config = {
            **broker_client(resolve("bootstrap", bootstrap)),
            "client.id": application,
            "enable.idempotence": True,
            "compression.type": "zstd",
            "partitioner": "murmur2_random",
            "linger.ms": 20,
            "batch.num.messages": 10_000,
            "queue.buffering.max.messages": queue_messages,
            "queue.buffering.max.kbytes": max(1, queue_bytes // 1024),
            "log_level": 2,
            **(config or {}),
        }
        self._prepared: dict[type, _Prepared] = {}
        self._lock = threading.Lock()
        self._running: _Running | None = None
        self._closed = False
        for cls in events:
            self._prepare(cls)
        self._start()
        _alive.add(self)

    def send(
        self, event: object, *, key: bytes | None = None, headers: Headers | None = None
    ) -> bool:
        """Hand an event over; True if it is queued, False if it was dropped (and counted).

        `key` overrides the key that the schema names. Raises EncodeError for an event that is not
        of its schema, UsageError if its schema is not registered or the producer is closed.
        """
        return self._enqueue(event, key, headers, None)

    async def asend(
        self, event: object, *, key: bytes | None = None, headers: Headers | None = None
    ) -> bool:
        """`send` for asyncio: where `send` would wait for a full queue, this lets the loop run."""
        deadline = time.monotonic() + self._wait_ms / 1000
        while len(self._start().client) >= self._queue_messages and time.monotonic() < deadline:
            await asyncio.sleep(0.005)
        return self._enqueue(event, key, headers, None, wait_ms=0)

    def send_and_wait(
        self,
        event: object,
        timeout: float,
        *,
        key: bytes | None = None,
        headers: Headers | None = None,
    ) -> tuple[int, int]:
        """Send an event and wait until the broker has it; its (partition, offset).

        Raises DeliveryError if it is not acknowledged within `timeout` seconds; it may still be
        delivered afterwards.
        """
        done = threading.Event()
        outcome: list[tuple[Any, Any]] = []

        def report(error: Any, message: Any) -> None:
            outcome.append((error, message))
            done.set()

        if not self._enqueue(event, key, headers, report):
            raise DeliveryError("the event was dropped: the queue is full", fix="try again later")
        if not done.wait(timeout):
            raise DeliveryError(f"the broker did not acknowledge the event within {timeout} s")
        error, message = outcome[0]
        if error is not None:
            raise DeliveryError(f"the event was not delivered: {error.str()}")
        return message.partition(), message.offset()

    def flush(self, timeout: float) -> int:
        """Wait up to `timeout` seconds until nothing is queued; the number of messages left."""
        return self._start().client.flush(timeout)

    def counts(self) -> dict[str, int]:
        """What this producer counted and has not published to the audit yet, by outcome."""
        return self._start().counters.unpublished()

    def close(self) -> int:
        """Deliver what is queued, publish the counts, and stop; the number of messages left.

        Waits at most `close_timeout` seconds. Counts of what could not be delivered or published
        stay in the state folder, and the next producer that uses it publishes them.
        """
        with self._lock:
            running, self._running = self._running, None
            self._closed = True
        _alive.discard(self)
        if running is None:
            return 0
        return running.stop(self._close_timeout)

    def __enter__(self) -> Producer:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        self.close()

    def _enqueue(
        self,
        event: object,
        key: bytes | None,
        headers: Headers | None,
        report: OnDelivery | None,
        *,
        wait_ms: int | None = None,
    ) -> bool:
        """Encode, count and queue an event."""
        cls = event.__class__
        prepared = self._prepared.get(cls) or self._prepare(cls)
        value = prepared.prefix + prepared.encode(event)
        timestamp = prepared.event_time(event) if prepared.event_time else int(time.time() * 1000)
        if key is None and prepared.key is not None:
            key = prepared.key(event)
        running = self._running or self._start()
        wait = self._wait_ms if wait_ms is None else wait_ms
        return running.put(prepared.topic, value, key, timestamp, headers, report, wait)

    def _prepare(self, cls: type) -> _Prepared:
        kind: EventType[Any] = event_type(cls)
        found = _Prepared(
            kind.encode, prefix(self._ids.find(kind)), kind.topic, kind.event_time, kind.key
        )
        self._prepared[cls] = found
        return found

    def _start(self) -> _Running:
        """What runs: started anew after a fork. UsageError if the producer is closed."""
        with self._lock:
            if self._closed:
                raise UsageError("the producer is closed", fix="send before close, or make another")
            if self._running is None:
                self._running = _Running(self)
            return self._running

    def _after_fork(self) -> None:
        """In a forked child: let go of the parent's client and counters without touching them."""
        _abandoned.append(self._running)
        self._lock = threading.Lock()
        self._running = None


class _Running:
    """The parts of a producer that belong to one process: client, counters and thread."""

    def __init__(self, producer: Producer) -> None:
        self.client = confluent_kafka.Producer(dict(producer._config))
        self.counters = CounterFile(producer._state_dir)
        self._reporter = Reporter(
            producer._state_dir,
            tier="producer",
            application=producer._application,
            ids=producer._ids,
            send=self._send_audit,
        )
        self._every = producer._audit_every
        self._reporting = threading.Lock()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._serve, name="headworks-producer", daemon=True)
        self._thread.start()

    def put(
        self,
        topic: str,
        value: bytes,
        key: bytes | None,
        timestamp: int,
        headers: Headers | None,
        report: OnDelivery | None,
        wait_ms: int,
    ) -> bool:
        slot = self.counters.attempt(topic, timestamp - timestamp % WINDOW_MS, len(value))
        callback = slot.report if report is None else _both(slot.report, report)
        deadline = 0.0
        while True:
            try:
                self.client.produce(
                    topic,
                    value,
                    key,
                    on_delivery=callback,
                    timestamp=timestamp,
                    headers=None if headers is None else dict(headers),
                )
            except BufferError:
                now = time.monotonic()
                deadline = deadline or now + wait_ms / 1000
                if now < deadline:
                    time.sleep(0.002)
                    continue
                slot.resolve(QUEUE_FULL)
                return False
            except KafkaException as error:
                too_large = error.args[0].code() == KafkaError.MSG_SIZE_TOO_LARGE
                slot.resolve(TOO_LARGE if too_large else BROKER_ERROR)
                return False
            return True

    def stop(self, timeout: float) -> int:
        """Deliver and publish within `timeout` seconds; the number of messages left."""
        deadline = time.monotonic() + timeout
        self._stopping.set()
        self._thread.join(timeout)
        left = self.client.flush(max(0.1, deadline - time.monotonic()))
        while self._report() and time.monotonic() < deadline:
            self.client.flush(max(0.1, deadline - time.monotonic()))
        self._reporter.close()
        if left:
            _log.error("%d messages were not delivered when the producer closed", left)
            self.client.purge()
            self.client.flush(1.0)
            self._report()
        self.counters.close(remove=self.counters.settled())
        return left

    def _serve(self) -> None:
        due = time.monotonic()
        while not self._stopping.is_set():
            try:
                self.client.poll(_POLL)
                if time.monotonic() >= due:
                    due = time.monotonic() + self._every
                    self._report()
            except Exception:
                # Without this thread nothing is delivered any more: say it loudly, and go on.
                _log.exception("serving delivery reports failed")
                self._stopping.wait(1.0)

    def _report(self) -> int:
        """Queue what is to be published; 0 if nothing, or if the audit cannot be reached now."""
        with self._reporting:
            try:
                return self._reporter.report_leftovers() + self._reporter.report(self.counters)
            except HeadworksError as error:
                _log.warning("audit counts are kept for later: %s", error)
                return 0

    def _send_audit(self, value: bytes, report: OnDelivery) -> bool:
        try:
            self.client.produce(AUDIT_TOPIC, value, on_delivery=report)
        except (BufferError, KafkaException):
            return False
        return True


def close_on_sigterm(producer: Producer) -> None:
    """Close `producer` when this process is asked to end (SIGTERM), then end as before.

    Python's default for SIGTERM ends the process without running atexit; call this from the main
    thread of a program that has no handler of its own.
    """
    before = signal.getsignal(signal.SIGTERM)

    def handle(number: int, frame: FrameType | None) -> None:
        producer.close()
        if callable(before):
            before(number, frame)
        else:
            signal.signal(number, signal.SIG_DFL)
            os.kill(os.getpid(), number)

    signal.signal(signal.SIGTERM, handle)


def _both(first: OnDelivery, second: OnDelivery) -> OnDelivery:
    def report(error: object, message: object) -> None:
        first(error, message)
        second(error, message)

    return report


def _default_state_dir() -> Path:
    base = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    return Path(base) / "headworks" / "producer"


# Freed by the end of the process only: librdkafka's threads did not survive the fork, and to
# destroy such a client would wait for them for ever.
_abandoned: list[_Running | None] = []
_alive: weakref.WeakSet[Producer] = weakref.WeakSet()


def _restart_after_fork() -> None:
    for producer in list(_alive):
        producer._after_fork()


def _close_at_exit() -> None:
    for producer in list(_alive):
        producer.close()


os.register_at_fork(after_in_child=_restart_after_fork)
atexit.register(_close_at_exit)
