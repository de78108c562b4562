"""The consumer: a member of a group that iterates over typed messages, at least once each.

Rules:

- A message is processed when the next one is asked for (or `commit` is called); only processed
  messages are committed, so a crash repeats the last ones and loses none.
- A message that cannot be decoded is never silently dropped: `on_poison` says whether it stops
  the consumer (default), is skipped and counted, or goes to a dead-letter topic.
- Offsets are committed every `commit_every` seconds, when partitions are taken away, and at the
  end; with None only by `commit`.
- Not shared between threads, but for `stop`.
"""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from copy import copy
from datetime import datetime
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, Generic, Literal, TypeVar, cast

import confluent_kafka
from confluent_kafka import KafkaError, KafkaException

from consumer_sdk._audit_tier import AuditTier
from consumer_sdk._decode import DecodeError, Decoder
from consumer_sdk._group_config import GroupConfig
from consumer_sdk._membership import Membership, OnPartitions, Start
from consumer_sdk._message import Message, Partition
from consumer_sdk._offsets import SeekTarget, offsets_of
from consumer_sdk._poison import DeadLetterWriter, OnPoison, PoisonMessageError
from consumer_sdk._zookeeper_group import ZooKeeperMember, ZooKeeperStream
from headworks._kafka.bootstrap import Brokers
from headworks._settings import resolve
from headworks._wire import FramingError
from headworks.codec._event import EventType, event_type
from headworks.errors import HeadworksError, UnreachableError, UsageError
from headworks.registry_client import RegistryClient

__all__ = ["Consumer"]

T = TypeVar("T")
_UNREACHABLE_ERRORS = {KafkaError._ALL_BROKERS_DOWN, KafkaError._TRANSPORT}
_POLL_SECONDS = 0.5


class Consumer(Generic[T]):
    """Iterates over the messages of topics as a member of `group`; also by `async for`.

    Give one of: `events`, generated classes (their topics, their types); `topics` by name; or
    `matching`, a regular expression for whole names of topics, without those that `excluding`
    matches (topics created later are found). Without classes events are dicts in the schema they
    were written with. `bootstrap` and `registry` default to the settings of that name.

    `start` says where a group begins that has committed nothing: earliest, latest, or at a time.
    `on_assigned` and `on_revoked` are told of partitions that come and go; what was processed is
    committed after `on_revoked` returns. `dead_letter_topic` defaults to TOPIC.dead-letter.
    Who balances the group is `membership`: a broker, or its members themselves over `zookeeper`.
    The brokers are those of `bootstrap`, or those that are registered at `zookeeper`.
    With `audit` the group counts itself as tier consumer:GROUP of the audit, for `application`.
    `config` adds properties of librdkafka.
    """

    def __init__(
        self,
        events: Sequence[type[T]] = (),
        *,
        group: str,
        topics: Sequence[str] = (),
        matching: str | None = None,
        excluding: str | None = None,
        bootstrap: str | None = None,
        zookeeper: str | None = None,
        membership: Literal["broker", "zookeeper"] = "broker",
        registry: str | None = None,
        start: Start = "earliest",
        on_poison: OnPoison = OnPoison.STOP,
        dead_letter_topic: str | None = None,
        commit_every: float | None = 5.0,
        on_assigned: OnPartitions | None = None,
        on_revoked: OnPartitions | None = None,
        audit: bool = False,
        application: str | None = None,
        audit_every: float = 10.0,
        state_dir: Path | None = None,
        config: dict[str, Any] | None = None,
    ) -> None:
        if sum(map(bool, (events, topics, matching))) != 1:
            raise UsageError(
                "a Consumer reads either `events`, `topics` or what is `matching`",
                fix="give one of them",
            )
        if isinstance(start, datetime) and start.tzinfo is None:
            raise UsageError("`start` has no time zone", fix="give an aware datetime, e.g. in UTC")
        self.skipped = 0
        self._brokers = Brokers(bootstrap, zookeeper)
        registry_url = resolve("registry", registry)
        self._client = RegistryClient(registry_url)
        types: list[EventType[Any]] = [event_type(cls) for cls in events]
        self._decoders = {k.topic: Decoder(self._client, k.topic, k) for k in types}
        self._on_poison = on_poison
        self._explicit_commits = commit_every is None
        self._processed: confluent_kafka.Message | None = None
        self._closed = self._stopping = False
        client = self._brokers.client()
        self._make_dead_letters = partial(
            DeadLetterWriter, client, group=group, topic=dead_letter_topic
        )
        self._dead_letters = self._make_dead_letters()
        self._group_config = GroupConfig(
            group=group,
            client=client,
            topics=[k.topic for k in types] or list(topics),
            matching=matching,
            excluding=excluding,
            start=start,
            commit_every=commit_every,
            on_assigned=on_assigned,
            on_revoked=on_revoked,
            config=config or {},
        )
        self._membership: Membership
        try:
            if membership == "zookeeper":
                ensemble = resolve("zookeeper", zookeeper)
                self._membership = self._group_config.zookeeper_membership(ensemble)
            else:
                self._membership = self._group_config.broker_membership()
        except BaseException:
            self._brokers.close()
            raise
        self._first = True
        self._audit_tier: AuditTier | None = None
        if audit:
            self._audit_tier = AuditTier(
                client,
                registry_url,
                group=group,
                application=application or group,
                state_dir=state_dir or _default_state_dir(),
                every=audit_every,
            )

    def __iter__(self) -> Iterator[Message[T]]:
        """Messages as they come, until `stop` or `close`."""
        while not self._ended:
            message = self.poll(_POLL_SECONDS)
            if message is not None:
                yield message

    async def __aiter__(self) -> AsyncIterator[Message[T]]:
        """Messages as they come, without ever blocking the event loop."""
        while not self._ended:
            message = await self.apoll(_POLL_SECONDS)
            if message is not None:
                yield message

    def poll(self, timeout: float) -> Message[T] | None:
        """The next message, or None if none comes within `timeout` seconds.

        The message before counts as processed. Raises PoisonMessageError under OnPoison.STOP,
        UnreachableError if no broker answers.
        """
        self._mark_processed()
        while True:
            raw = self._next(timeout)
            if raw is None:
                return None
            try:
                decoded = self._decode(raw)
            except BaseException:
                self._membership.put_back(raw)  # not processed: the next poll meets it again
                raise
            self._processed = raw
            if decoded is not None:
                return decoded
            self._mark_processed(skipped=True)

    async def apoll(self, timeout: float) -> Message[T] | None:
        """`poll` for asyncio: what has to wait for the network waits in a thread.

        When it is cancelled it ends once the thread is back, within half a second if the broker
        answers; what the thread brought comes with the next poll.
        """
        deadline = time.monotonic() + timeout
        while not self._membership.has_buffered:
            turn = min(max(0.0, deadline - time.monotonic()), _POLL_SECONDS)
            polling = asyncio.ensure_future(asyncio.to_thread(self.poll, turn))
            try:
                found = await asyncio.shield(polling)
            except asyncio.CancelledError:
                await asyncio.wait([polling])
                if polling.exception() is None and self._processed is not None:
                    self._membership.put_back(self._processed)  # nobody was given it
                    self._processed = None
                raise
            if found is not None or time.monotonic() >= deadline:
                return found
        return self.poll(max(0.0, deadline - time.monotonic()))

    def reject(self, reason: str) -> None:
        """Send the message given last to the dead-letter topic, and count it as skipped.

        For messages that decode, and that the application cannot digest. Raises UsageError if
        there is no such message, UnreachableError if the broker does not take it.
        """
        if self._processed is None:
            raise UsageError("there is no message to reject", fix="reject the one that poll gave")
        self._dead_letters.send(self._processed, reason)
        self.skipped += 1
        self._mark_processed(skipped=True)

    def rewind(self, to: SeekTarget) -> None:
        """Go on from elsewhere in the partitions of this member: a time, an end, or offsets.

        The group's committed offsets go there too, unless commits are explicit. Raises UsageError
        if no partition is assigned (yet), UnreachableError if the broker does not answer.
        """
        partitions = self.assignment
        if not partitions:
            raise UsageError(
                "no partition is assigned to this member", fix="rewind after the first poll"
            )
        self._processed = None
        offsets = offsets_of(self._membership.client, partitions, to)
        self._membership.move(offsets, commit=not self._explicit_commits)

    @property
    def assignment(self) -> list[Partition]:
        """The partitions that this member reads now."""
        return self._membership.assignment

    def commit(self) -> None:
        """Commit what was processed, the last message given out included, and wait for it."""
        self._mark_processed()
        self._membership.commit()

    def streams(self, count: int) -> list[Consumer[T]]:
        """This consumer and `count` - 1 more, each for a thread of its own, as one member.

        In a group with membership "zookeeper" only, and before the first poll. Each counts in the
        group as a member would. Closing this one ends them all.
        """
        stream = self._membership
        if not isinstance(stream, ZooKeeperStream) or stream.member.started or count < 1:
            raise UsageError(
                "streams are made of a consumer with membership='zookeeper', before it polls",
                fix="several threads of a group that a broker balances are several Consumers",
            )
        return [self, *(self._new_stream(stream.member) for _ in range(count - 1))]

    def stop(self) -> None:
        """End the iteration after the message at hand; safe in signal handlers and threads."""
        self._stopping = True

    def stop_on_signals(
        self, *signals: int, default: tuple[int, ...] = (signal.SIGTERM, signal.SIGINT)
    ) -> None:
        """Call `stop` when one of `signals` comes (SIGTERM, SIGINT); from the main thread."""
        for number in signals or default:
            signal.signal(number, lambda *_: self.stop())

    def close(self) -> None:
        """Commit (unless commits are explicit), leave the group and stop; safe to call twice."""
        if not self._closed:
            self._closed = True
            if not self._explicit_commits:
                self._mark_processed()
            self._membership.close()
            if self._first:
                if self._audit_tier is not None:
                    self._audit_tier.close()
                self._brokers.close()

    def __enter__(self) -> Consumer[T]:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        if kind is not None:
            self._processed = None  # what raised was not processed
        self.close()

    def _next(self, timeout: float) -> confluent_kafka.Message | None:
        raw = self._membership.next(timeout)
        if raw is None:
            return None
        problem = raw.error()
        if problem is None:
            return raw
        if problem.code() in _UNREACHABLE_ERRORS:
            if self._brokers.followed:
                return None  # others take their place, and ZooKeeper tells who
            raise UnreachableError(
                f"the broker at {self._brokers.address} does not answer: {problem.str()}",
                fix="start it with `headworks up`, or set `bootstrap`",
            )
        if problem.code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
            return None  # it may be created yet
        raise KafkaException(problem)

    def _decode(self, raw: confluent_kafka.Message) -> Message[T] | None:
        topic = raw.topic() or ""
        decoder = self._decoders.get(topic)
        if decoder is None:
            decoder = self._decoders[topic] = Decoder(self._client, topic)
        try:
            event, schema_id = decoder.decode(raw.value() or b"")
        except (DecodeError, FramingError) as error:
            self._handle_poison(raw, error)
            return None
        return Message(
            event=event,
            topic=topic,
            partition=raw.partition() or 0,
            offset=raw.offset() or 0,
            timestamp=raw.timestamp()[1],
            key=raw.key(),
            headers=tuple(cast("list[tuple[str, bytes | None]]", raw.headers() or [])),
            schema_id=schema_id,
            schema_version=decoder.version(schema_id),
        )

    def _handle_poison(self, raw: confluent_kafka.Message, error: HeadworksError) -> None:
        if self._on_poison is OnPoison.STOP:
            raise PoisonMessageError(
                f"{raw.topic()} partition {raw.partition()} offset {raw.offset()}: {error.message}",
                fix="skip such messages with on_poison=OnPoison.SKIP, keep them with"
                " OnPoison.DEAD_LETTER, or move the group on",
            ) from error
        if self._on_poison is OnPoison.DEAD_LETTER:
            self._dead_letters.send(raw, error.message)
        self.skipped += 1

    def _mark_processed(self, *, skipped: bool = False) -> None:
        if self._processed is not None:
            if self._audit_tier is not None:
                self._audit_tier.processed(self._processed, skipped=skipped)
            self._membership.processed(self._processed)
            self._processed = None

    @property
    def _ended(self) -> bool:
        return self._closed or self._stopping or self._membership.closed

    def _new_stream(self, member: ZooKeeperMember) -> Consumer[T]:
        """Another stream of the same member: what one thread touches is its own."""
        sibling = copy(self)
        sibling._membership = self._group_config.new_stream(member)
        sibling._decoders = dict(self._decoders)
        sibling._dead_letters = self._make_dead_letters()
        sibling._first = False
        return sibling


def _default_state_dir() -> Path:
    base = os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state"
    return Path(base) / "headworks" / "consumer"
