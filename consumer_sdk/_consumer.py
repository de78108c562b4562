"""The consumer: a member of a group that iterates over typed messages, at least once each.

Rules:

- A message is processed when the application asks for the next one, or calls `commit`. Only
  processed messages are committed, so a crash repeats the last ones and loses none.
- A message that cannot be decoded is never silently dropped. `on_poison` stops the consumer (the
  default), skips and counts the message, or writes it to a dead-letter topic.
- A damaged record batch is never skipped unless `skip_damaged` says so, and then only that batch.
- The consumer commits every `commit_every` seconds, when it loses partitions, and when it closes.
  If `commit_every` is None, only `commit` commits.
- One thread uses a consumer at a time. Any thread may call `stop`.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator, Mapping, Sequence
from copy import copy
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeVar, Unpack, overload

import confluent_kafka

from consumer_sdk._arguments import check_member, check_sources
from consumer_sdk._audit_tier import AuditTier
from consumer_sdk._decode import DecodeError
from consumer_sdk._error_events import ErrorEvents
from consumer_sdk._fetch_buffer import FetchLimits
from consumer_sdk._group_config import GroupConfig
from consumer_sdk._last_message import LastMessage
from consumer_sdk._loop import CLOSE_SECONDS, POLL_SECONDS
from consumer_sdk._membership import Membership, OnPartitions, Start
from consumer_sdk._message import Deleted, Message, Partition
from consumer_sdk._message_step import compiled_step
from consumer_sdk._offsets import SeekTarget, offsets_of
from consumer_sdk._options import ConsumerOptions
from consumer_sdk._outcomes import MessageOutcomes
from consumer_sdk._poison import OnPoison
from consumer_sdk._reachability import BrokerReachability
from consumer_sdk._retry_sources import create_missing, redriven_sources
from consumer_sdk._topic_decoders import TopicDecoders
from consumer_sdk._zookeeper_group import ZooKeeperMember, ZooKeeperStream
from headworks._audit_counting.outcomes import CONSUMED
from headworks._choice import choice
from headworks._in_thread import in_thread
from headworks._kafka.bootstrap import BootstrapServers
from headworks._settings import resolve
from headworks._wire import FramingError
from headworks.errors import HeadworksError, UsageError

if TYPE_CHECKING:
    from headworks._native._messages import CompiledStep

T = TypeVar("T")
U = TypeVar("U")


class Consumer(LastMessage[T]):
    """Iterates over the messages of topics as a member of `group`; also by `async for`.

    Give one of `events`, `topics`, and `matching`. `events` are generated classes: the consumer
    reads their topics and returns instances of them. With `tombstones`, a message without a value
    is a `Deleted`. `topics` are names. `matching` is a regular
    expression for whole names, without those that `excluding` matches; topics created later are
    included. With `topics` or `matching`, events are dicts in the schema they were written with.

    `bootstrap` and `registry` default to the settings of that name. With `zookeeper`, the brokers
    are those registered there. `membership` says which side balances the group: a broker, or its
    members themselves over `zookeeper`. `config` adds properties of librdkafka.

    `start` is where a group begins that has committed nothing: "earliest", "latest", or a time.
    `on_assigned` and `on_revoked` receive the partitions that this member gains and loses.
    `unreachable_after` is how long the consumer waits while no broker answers; None: for ever.
    Processed messages are committed after `on_revoked` returns. `dead_letter_topic` defaults to
    TOPIC.dead-letter. With `redriven`, the consumer also reads the dead letters that `headworks
    dead-letter redrive --to-group` returns to this group alone. `max_poll_records` is how many
    messages are fetched ahead. With `skip_damaged`, the consumer skips record batches whose CRC is
    wrong, and counts their offsets. With `audit`, the group is tier consumer:GROUP of the audit,
    and `application` names this program there.
    """

    skipped_damaged = 0  # offsets of damaged record batches that were skipped
    _is_first = True  # whether closing this stream closes what its siblings share
    _compiled: CompiledStep | None = None  # the compiled form of `_buffered`

    @overload
    def __init__(
        self: Consumer[U | Deleted[U]],
        events: Sequence[type[U]],
        *,
        group: str,
        tombstones: Literal[True],
        **options: Unpack[ConsumerOptions],
    ) -> None: ...
    @overload
    def __init__(
        self: Consumer[dict[str, Any]],
        *,
        group: str,
        topics: Sequence[str] = ...,
        matching: str | None = ...,
        tombstones: bool = ...,
        **options: Unpack[ConsumerOptions],
    ) -> None: ...
    @overload
    def __init__(
        self,
        events: Sequence[type[T]],
        *,
        group: str,
        tombstones: bool = ...,
        **options: Unpack[ConsumerOptions],
    ) -> None: ...
    def __init__(
        self,
        events: Sequence[type[Any]] = (),
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
        tombstones: bool = False,
        dead_letter_topic: str | None = None,
        redriven: bool = False,
        skip_damaged: bool = False,
        max_poll_records: int = 500,
        commit_every: float | None = 5.0,
        unreachable_after: float | None = 60.0,
        on_assigned: OnPartitions | None = None,
        on_revoked: OnPartitions | None = None,
        audit: bool = False,
        application: str | None = None,
        audit_every: float = 10.0,
        state_dir: Path | str | None = None,
        config: dict[str, Any] | None = None,
    ) -> None:
        check_sources(events, topics, matching, excluding, redriven=redriven)
        check_member(group, membership, start, application, max_poll_records)
        policy = choice(OnPoison, on_poison, "on_poison")
        self._brokers = BootstrapServers(bootstrap, zookeeper)
        registry_url = resolve("registry", registry)
        retried = self._retry_sources(redriven_sources(events, topics, group) if redriven else {})
        self._decoders = TopicDecoders(registry_url, events, retried, tombstones=tombstones)
        self._watch = BrokerReachability(self._brokers.address, config or {}, unreachable_after)
        self._group_config = GroupConfig(
            group=group,
            client=self._brokers.client(),
            topics=[*(self._decoders.topics or topics), *retried],
            sources=retried,
            matching=matching,
            excluding=excluding,
            start=start,
            limits=FetchLimits(max_poll_records),
            commit_every=commit_every,
            dead_letter_topic=dead_letter_topic,
            on_assigned=on_assigned,
            on_revoked=on_revoked,
            config=self._watch.config,
        )
        self._membership: Membership = self._join(membership, zookeeper)
        counted = (self._group_config.client, registry_url, group, application or group, state_dir)
        self._audit_tier = AuditTier(*counted, events, every=audit_every) if audit else None
        self._outcomes = MessageOutcomes(self._group_config, policy, self._audit_tier)
        self._connect_step()
        self._error_events = ErrorEvents(
            *(self._brokers, self._watch, self._group_config.reader, self._audit_tier, skip_damaged)
        )

    def poll(self, timeout: float) -> Message[T] | None:
        """Return the next message, or None if none arrives within `timeout` seconds.

        The previous message counts as processed. Raises PoisonMessageError under OnPoison.STOP,
        DamagedBatchError for a damaged record batch unless `skip_damaged` is set, and
        UnreachableError if no broker answers. UsageError after `close`.
        """
        found = self._buffered()
        if found is not None:
            return found
        self._check_open()
        while True:
            raw = self._membership.next(timeout)
            if raw is None or raw.error() is not None:
                raw = self._after_event(raw, timeout)
            if raw is None:
                return None
            try:
                decoded = self._decoders.message(raw)
            except (DecodeError, FramingError) as error:
                self._end_poison(raw, error)
            except BaseException:
                self._membership.put_back(raw)  # the next poll returns to it
                raise
            else:
                if self._membership.has_lost(raw):
                    continue  # its new owner returns it: decoding may wait for the registry
                self._last = raw
                return decoded

    async def apoll(self, timeout: float) -> Message[T] | None:
        """Return what `poll` returns, but wait in a thread: for brokers, registry, dead letters.

        If the task is cancelled, it ends when the thread returns: within half a second if the
        broker answers. The next poll returns the message that the thread fetched.
        """
        found = self._buffered()
        deadline = time.monotonic() + timeout
        while found is None:
            if self._audit_tier is not None and not self._audit_tier.is_ready:
                await in_thread(self._audit_tier.look_up)
            turn = min(max(0.0, deadline - time.monotonic()), POLL_SECONDS)
            try:
                found = await in_thread(self.poll, turn)
            except asyncio.CancelledError:
                if self._last is not None:
                    self._membership.put_back(self._last)  # the application did not get it
                    self._last = None
                raise
            if time.monotonic() >= deadline:
                break
        return found

    def _buffered(self) -> Message[T] | None:
        """Return the next message if that needs no waiting; the previous one is processed then."""
        if self._compiled is not None:
            return self._compiled.next()  # type: ignore[no-any-return]
        last = self._last
        if last is not None:  # `_mark_processed` without its calls, because every message is here
            self._last = None
            self._outcomes.ended[CONSUMED] += 1
            if self._audit_tier is not None:
                self._audit_tier.processed(last, CONSUMED)
        raw = self._membership.exchange(last)
        if raw is None:
            return None
        try:
            found: Message[T] | None = self._decoders.known_message(raw)
        except BaseException:
            self._membership.put_back(raw)
            raise
        if found is None:
            self._membership.put_back(raw)  # `poll` returns to it, and may wait
        else:
            self._last = raw
        return found

    def _connect_step(self) -> None:
        self._step = self._membership.step
        count = None if self._audit_tier is None else self._audit_tier.processed
        read, ended = self._decoders.known_message, self._outcomes.ended
        self._compiled = compiled_step(self._step, read, ended, CONSUMED, count)

    def _ready(self) -> Iterator[Message[T]]:
        return super()._ready() if self._compiled is None else self._compiled

    def stop(self) -> None:
        """End the iteration after the current message; safe in signal handlers and threads."""
        super().stop()
        if self._compiled is not None:
            self._compiled.is_stopped = True

    def _retry_sources(self, redriven: dict[str, str]) -> dict[str, str]:
        """Return the topic of each retry topic that this consumer reads."""
        return redriven

    def rewind(self, to: SeekTarget) -> None:
        """Continue from an end, a time, or offsets in the partitions of this member.

        The group's committed offsets move too, unless commits are explicit. Raises UsageError if no
        partition is assigned yet, and UnreachableError if the broker does not answer.
        """
        partitions = self.assignment
        if not partitions:
            raise UsageError(
                "no partition is assigned to this member", fix="rewind after the first poll"
            )
        offsets = self._membership.use(lambda client: offsets_of(client, partitions, to))
        if (last := self._last) is not None:
            if (last.topic(), last.partition()) not in offsets:
                self._mark_processed()
            self._last = None
        self._membership.move(offsets, commit=not self._explicit_commits)

    @property
    def _explicit_commits(self) -> bool:
        """Whether only `commit` commits."""
        return self._group_config.commit_every is None

    @property
    def assignment(self) -> list[Partition]:
        """The partitions that this member reads now."""
        return self._membership.assignment

    @property
    def totals(self) -> Mapping[str, int]:
        """The messages that this process ended, of all streams: by `consumed`, `skipped`, ..."""
        return self._outcomes.totals

    def commit(self) -> None:
        """Commit all messages up to the last one that was returned, and wait for the commit.

        UsageError after `close`, which commits by itself unless commits are explicit.
        """
        self._check_open()
        self._mark_processed()
        self._membership.commit()

    def streams(self, count: int) -> list[Consumer[T]]:
        """Return this consumer and `count` - 1 more, each for one thread, as one member.

        Only for membership "zookeeper", and before the first poll. Each stream gets a share of the
        partitions, as a member would. Closing this consumer closes them all.
        """
        stream = self._membership
        if not isinstance(stream, ZooKeeperStream) or stream.member.started or count < 1:
            raise UsageError(
                "streams are made of a consumer with membership='zookeeper', before it polls",
                fix="several threads of a group that a broker balances are several Consumers",
            )
        return [self, *(self._new_stream(stream.member) for _ in range(count - 1))]

    def close(self, timeout: float = CLOSE_SECONDS) -> None:
        """Commit unless commits are explicit, and leave the group; safe to call twice.

        If no broker answers, that takes `timeout` seconds. Messages that were not committed are
        repeated.
        """
        if not self._closed:
            self._closed = True
            self.stop()
            if not self._explicit_commits:
                self._mark_processed()
            self._membership.close(timeout)
            if self._is_first:
                if self._audit_tier is not None:
                    self._audit_tier.close()
                self._brokers.close()

    def _join(self, membership: str, zookeeper: str | None) -> Membership:
        try:
            create_missing(self._group_config.client, self._group_config.sources)
            if membership == "zookeeper":
                return self._group_config.zookeeper_membership(resolve("zookeeper", zookeeper))
            return self._group_config.broker_membership()
        except BaseException:
            self._brokers.close()
            raise

    def _after_event(
        self, raw: confluent_kafka.Message | None, timeout: float
    ) -> confluent_kafka.Message | None:
        """Handle events of librdkafka; return the message after them, if there is one in time."""
        if raw is None and not self._brokers.followed:  # else ZooKeeper names other brokers
            self._membership.use(self._watch.check)
        deadline = time.monotonic() + timeout
        while raw is not None and raw.error() is not None:
            self.skipped_damaged += self._error_events.handle(raw, self._membership)
            raw = self._membership.next(max(0.0, deadline - time.monotonic()))
        return raw

    def _end_poison(self, raw: confluent_kafka.Message, error: HeadworksError) -> None:
        """End a message that cannot be decoded, or raise and keep it."""
        try:
            outcome = self._outcomes.of_poison(raw, error)
        except BaseException:
            self._membership.put_back(raw)
            raise
        if self._is_shared:
            self._membership.hand_over(raw)  # it ends behind the messages before it
        self._outcomes.end(raw, self._membership, outcome)

    def _mark_processed(self) -> None:
        if self._last is not None:
            self._outcomes.end(self._last, self._membership)
            self._last = None

    def _check_open(self) -> None:
        if self._closed:
            raise UsageError("the consumer is closed", fix="poll and commit before close")

    @property
    def _ended(self) -> bool:
        return self._closed or self._stopping or self._membership.closed

    def _new_stream(self, member: ZooKeeperMember) -> Consumer[T]:
        """Return another stream of the same member, with its own copy of the per-thread state."""
        sibling = copy(self)
        sibling._membership = self._group_config.new_stream(member)
        sibling._step = sibling._membership.step
        sibling._decoders = self._decoders.copy()
        sibling._outcomes = self._outcomes.copy()
        sibling._is_first = False
        return sibling
