"""Reading a log through librdkafka: topics, watermarks, and the messages of a range.

Rules:

- A fetcher yields every message of its ranges once, in order by partition, and then ends. Offsets
  without a message (compacted, control records) end nothing. Messages of several topics arrive
  interleaved.
- No offset is committed to the broker, and none is reset: the commit log alone knows them.
- A silent broker ends the fetch with an error after `timeout` seconds.
- A partition without a leader has no watermarks: they are never guessed. If no leader answers for
  any partition, the broker counts as unreachable.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, Protocol

from hadoop_loader._fetch.damage import DamagedRange, DamageReport, damage_error
from hadoop_loader._fetch.log_identity import LogIdentity
from hadoop_loader._fetch.messages import FetchedMessage, clamp_timestamp
from hadoop_loader._fetch.ranges import (
    FetchRange,
    Watermarks,
    consumer_assignments,
    no_leader_error,
    retention_gap_error,
)
from headworks._kafka.client_properties import READ_AHEAD
from headworks._kafka.damaged_batch import DamagedBatch, damaged_batch, offset_after
from headworks.errors import UnreachableError

__all__ = [
    "NO_BROKER_FIX",
    "FetchedMessage",
    "Fetcher",
    "KafkaFetcher",
    "KafkaLog",
    "Log",
    "silent_broker_error",
    "unreachable_error",
]


_Damaged = dict[tuple[str, int], DamagedBatch]  # by topic and partition
_MAX_NAMED_RANGES = 8
_MAX_RETRIES = 10
NO_BROKER_FIX = "start one with `headworks up`, or give --bootstrap the right address"


class Fetcher(Protocol):
    """Reads ranges, of one topic or of several."""

    def fetch(
        self, ranges: Sequence[FetchRange], damage: DamageReport | None = None
    ) -> Iterator[tuple[str, Sequence[FetchedMessage]]]:
        """Yield all messages of `ranges`, as a topic and a bounded number of its messages.

        Damaged batches and partitions that lost their leader are added to `damage`; without it,
        DamagedBatchError or UnreachableError is raised.
        """
        ...


class Log(Protocol):
    """The questions that the driver asks a broker."""

    def partitions(self) -> Mapping[str, Sequence[int]]:
        """Return every topic except the broker's own (`__...`), with its partitions."""
        ...

    def watermarks(
        self, topics: Mapping[str, Sequence[int]]
    ) -> Mapping[str, Mapping[int, Watermarks]]:
        """Return the first and next offset of each partition whose leader answers.

        Every topic is in the result. UnreachableError if no leader answers for any partition.
        """
        ...

    def identify(self, topics: Collection[str]) -> LogIdentity:
        """Return the ids of the cluster and of these topics."""
        ...

    def offsets_at(self, topic: str, partitions: Sequence[int], time_ms: int) -> Mapping[int, int]:
        """Return each partition's first offset with a record of `time_ms` or later, or its end.

        UnreachableError if the leader of a partition does not answer.
        """
        ...


class KafkaLog:
    """The Kafka-protocol brokers that the driver asks; `client` are properties of librdkafka."""

    def __init__(self, client: Mapping[str, Any], *, timeout: float = 15.0) -> None:
        from confluent_kafka.admin import AdminClient

        self._bootstrap: str = client["bootstrap.servers"]
        self._timeout = timeout  # seconds that a request may take
        # Librdkafka's admin client.
        self._admin = AdminClient({**client, "logger": _quiet_logger()})

    def partitions(self) -> Mapping[str, Sequence[int]]:
        """See Log.partitions."""
        found = self._checked(lambda: self._admin.list_topics(timeout=self._timeout))
        return {
            name: sorted(topic.partitions)
            for name, topic in sorted(found.topics.items())
            if not name.startswith("__") and topic.error is None
        }

    def watermarks(
        self, topics: Mapping[str, Sequence[int]]
    ) -> Mapping[str, Mapping[int, Watermarks]]:
        """See Log.watermarks."""
        from headworks._kafka.log_offsets import EARLIEST, LATEST

        low, high = self._offsets(topics, EARLIEST, LATEST)
        if not low.keys() & high.keys() and (asked := sum(map(len, topics.values()))):
            raise UnreachableError(
                f"broker {self._bootstrap}: no leader answers for any of {asked} partitions",
                fix="start the brokers that hold them again (`headworks topic describe`)",
            )
        return {
            topic: {
                # Not of one moment: retention may have passed the end.
                p: Watermarks(low[topic, p], max(low[topic, p], high[topic, p]))
                for p in partitions
                if (topic, p) in low and (topic, p) in high
            }
            for topic, partitions in topics.items()
        }

    def identify(self, topics: Collection[str]) -> LogIdentity:
        """See Log.identify."""
        from headworks._kafka.topic_ids import topic_ids

        cluster = self._checked(lambda: self._admin.list_topics("", timeout=self._timeout))
        known = topic_ids(self._admin, topics, timeout=self._timeout)
        return LogIdentity(str(cluster.cluster_id or ""), known)

    def offsets_at(self, topic: str, partitions: Sequence[int], time_ms: int) -> Mapping[int, int]:
        """See Log.offsets_at."""
        from headworks._kafka.log_offsets import LATEST, at_time

        asked = {topic: partitions}
        found, ends = self._offsets(asked, at_time(time_ms), LATEST)
        if away := sorted({(topic, p) for p in partitions} - (found.keys() & ends.keys())):
            raise no_leader_error(topic, [p for _, p in away])
        return {p: found[topic, p] if found[topic, p] >= 0 else ends[topic, p] for p in partitions}

    def _offsets(
        self, topics: Mapping[str, Sequence[int]], *specs: Any
    ) -> list[Mapping[tuple[str, int], int]]:
        """Return the offsets that leaders report, of each spec; no leader, no offset."""
        from headworks._kafka.log_offsets import list_several

        places = [(topic, partition) for topic, found in topics.items() for partition in found]
        # committed only, as the fetches
        several = list_several(self._admin, places, specs, timeout=self._timeout, committed=True)
        for error in (error for listed in several for error in listed.errors.values()):
            if error.args[0].code() not in _no_leader_codes():
                raise unreachable_error(self._bootstrap, error)
        return [listed.offsets for listed in several]

    def _checked(self, ask: Any) -> Any:
        from confluent_kafka import KafkaException

        try:
            return ask()
        except KafkaException as error:
            raise unreachable_error(self._bootstrap, error) from None


class KafkaFetcher:
    """Fetches the ranges of a task through librdkafka; `client` are its properties."""

    def __init__(
        self, client: Mapping[str, Any], *, timeout: float = 30.0, batch: int = 10_000
    ) -> None:
        self._client = client  # properties of librdkafka
        self._bootstrap: str = client["bootstrap.servers"]
        self._timeout = timeout  # seconds without data until the fetch fails
        self._batch = batch  # most messages of one consume call
        self._retries: Counter[DamagedBatch] = Counter()  # of damage that was none

    def fetch(
        self, ranges: Sequence[FetchRange], damage: DamageReport | None = None
    ) -> Iterator[tuple[str, list[FetchedMessage]]]:
        """See Fetcher.fetch."""
        from headworks._kafka.clients import KafkaConsumer

        consumer = KafkaConsumer(
            {
                **READ_AHEAD,
                **self._client,
                "group.id": "headworks-loader",
                "enable.auto.commit": False,
                "enable.auto.offset.store": False,
                "enable.partition.eof": True,
                "auto.offset.reset": "error",
                "queued.min.messages": 50_000,
                "fetch.message.max.bytes": 4 << 20,
                "topic.metadata.refresh.interval.ms": -1,
                "logger": _quiet_logger(),
            }
        )
        try:
            for group in consumer_assignments(ranges):
                yield from self._group(consumer, group, damage)
        finally:
            consumer.close()

    def _group(
        self, consumer: Any, ranges: Sequence[FetchRange], damage: DamageReport | None
    ) -> Iterator[tuple[str, list[FetchedMessage]]]:
        from confluent_kafka import TopicPartition

        ends = {(r.topic, r.partition): r.end for r in ranges}
        starts = {(r.topic, r.partition): r.start for r in ranges}
        consumer.assign([TopicPartition(r.topic, r.partition, r.start) for r in ranges])
        heard = time.monotonic()
        while ends:
            found = consumer.consume(self._batch, timeout=0.5)
            if not found:
                if time.monotonic() - heard > self._timeout:
                    if damage is not None and (left := self._leaderless(consumer, ends)):
                        damage.leaderless |= left
                        ends = {place: end for place, end in ends.items() if place not in left}
                        continue
                    where = [f"{topic}[{p}] to {end}" for (topic, p), end in ends.items()]
                    raise silent_broker_error(self._bootstrap, where, self._timeout)
                continue
            heard = time.monotonic()
            messages, done, damaged = self._sort_out(found, ends, starts)
            yield from messages.items()
            for place, batch in damaged.items():
                end = self._offset_after(batch, ends[place], damage)
                consumer.incremental_unassign([TopicPartition(*place)])
                if end < ends[place]:
                    starts[place] = end
                    consumer.incremental_assign([TopicPartition(*place, end)])
                else:
                    del ends[place]
            if done and ends:
                consumer.incremental_unassign([TopicPartition(*partition) for partition in done])

    def _leaderless(
        self, consumer: Any, places: Collection[tuple[str, int]]
    ) -> set[tuple[str, int]]:
        """Return those partitions that have no leader, by a broker's answer."""
        from confluent_kafka import KafkaException

        found = set(places)
        for name in {topic for topic, _ in found}:
            try:
                topic = consumer.list_topics(name, timeout=self._timeout).topics[name]
            except KafkaException as error:
                raise unreachable_error(self._bootstrap, error) from None
            found -= {(name, p) for p, one in topic.partitions.items() if one.leader >= 0}
        return found

    def _offset_after(self, batch: DamagedBatch, end: int, damage: DamageReport | None) -> int:
        """Return where to continue, which is `end` unless damaged batches are skipped."""
        if damage is None:
            raise damage_error(batch)
        after = min(end, offset_after(self._client, batch))
        if after <= batch.offset:  # librdkafka reports damage before the intact messages around it
            self._retries[batch] += 1
            if self._retries[batch] > _MAX_RETRIES:
                raise damage_error(batch)
            return batch.offset
        after = after if damage.skip else batch.offset
        damage.found.append(
            DamagedRange(batch.topic, batch.partition, batch.offset, after, batch.reason)
        )
        return after if damage.skip else end

    def _sort_out(
        self,
        found: list[Any],
        ends: dict[tuple[str, int], int],
        starts: dict[tuple[str, int], int],
    ) -> tuple[dict[str, list[FetchedMessage]], list[tuple[str, int]], _Damaged]:
        """Return the messages inside the ranges by topic, finished partitions, and damaged batches.

        Removes finished partitions from `ends`, and advances `starts`.
        """
        damaged: _Damaged = {}
        messages: dict[str, list[FetchedMessage]] = {}
        done: list[tuple[str, int]] = []
        for m in found:
            topic, partition = m.topic(), m.partition()
            end = ends.get((topic, partition))
            if end is None or (topic, partition) in damaged:
                continue
            offset = m.offset()
            error = m.error()
            if error is None:
                if offset < end:
                    timestamp = clamp_timestamp(m.timestamp()[1])
                    message = FetchedMessage(partition, offset, timestamp, m.key(), m.value())
                    messages.setdefault(topic, []).append(message)
                    starts[topic, partition] = offset + 1
                reached = offset + 1 >= end
            elif _is_end(error):
                reached = offset >= end
            elif _is_out_of_range(error):
                raise retention_gap_error(topic, partition, max(offset, 0))
            elif batch := damaged_batch(m, starts[topic, partition]):
                damaged[topic, partition] = batch
                continue
            else:
                raise unreachable_error(self._bootstrap, error)
            if reached:
                del ends[topic, partition]
                done.append((topic, partition))
        return messages, done, damaged


def _no_leader_codes() -> tuple[int, ...]:
    """Return the codes that say that a partition has no leader now.

    A broker that does not know the topic yet, or any more, leads none of its partitions.
    """
    from confluent_kafka import KafkaError

    return (
        KafkaError.LEADER_NOT_AVAILABLE,
        KafkaError.NOT_LEADER_FOR_PARTITION,
        KafkaError.UNKNOWN_TOPIC_OR_PART,
        KafkaError._NOENT,  # none of the requested partitions has one
    )


def _is_end(error: Any) -> bool:
    from confluent_kafka import KafkaError

    return bool(error.code() == KafkaError._PARTITION_EOF)


def _is_out_of_range(error: Any) -> bool:
    from confluent_kafka import KafkaError

    gone = (KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE)
    return bool(error.code() in gone)


def _quiet_logger() -> Any:
    import logging

    logger = logging.getLogger("headworks.loader.kafka")
    logger.setLevel(logging.CRITICAL)
    return logger


def silent_broker_error(bootstrap: str, where: Sequence[str], timeout: float) -> UnreachableError:
    """Return the error for a broker that sends nothing for these ranges."""
    more = f" and {len(where) - _MAX_NAMED_RANGES} more" if len(where) > _MAX_NAMED_RANGES else ""
    return UnreachableError(
        f"broker {bootstrap} sends nothing for {', '.join(where[:_MAX_NAMED_RANGES])}{more} "
        f"since {timeout:.0f} s",
        fix="see whether it runs, then load again: nothing is lost",
    )


def unreachable_error(bootstrap: str, error: object) -> UnreachableError:
    """Return the error for a broker that does not answer, or answers with an error."""
    from confluent_kafka import KafkaError, KafkaException

    reason = error.args[0] if isinstance(error, KafkaException) else error
    return UnreachableError(
        f"broker {bootstrap}: {reason.str() if isinstance(reason, KafkaError) else reason}",
        fix=NO_BROKER_FIX,
    )
