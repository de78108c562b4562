"""Prometheus metrics of the broker, served with `--metrics HOST:PORT`.

Rules:

- Measuring costs no more than adding numbers.
- A scrape reads those numbers in its own thread. Only the positions of the groups are read for it
  by the event loop.
- Labels are bounded. Beyond 1,000 topics and 200 groups nothing is shown; beyond 100 principals the
  rest is shown as one.
- Only this module imports prometheus-client.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Any

from prometheus_client import CollectorRegistry, ProcessCollector, generate_latest
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
)

from headworks._broker.handlers.counters import BOUNDS, Histogram
from headworks._broker.handlers.leadership import coordinates
from headworks._broker.handlers.node import Node
from headworks._broker.server.connection import Connection
from headworks._broker.server.limits import MemoryPool
from headworks._broker.topics import HostedTopic
from headworks._kafka.protocol import APIS, ErrorCode
from headworks._server.metrics_page import MetricsEndpoint, MetricsPage

_TOPIC, _PARTITION = ["topic"], ["topic", "partition"]
_MAX_TOPICS = 1000
_MAX_GROUPS = 200
_MAX_PRINCIPALS = 100
_OTHERS = "(others)"
_LAG_TIMEOUT_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class MetricsSource:
    """The parts of a broker that a scrape reads."""

    node: Node
    memory: MemoryPool
    connections: Callable[[], tuple[Connection, ...]]


class MetricsServer(MetricsPage):
    """Serves `/metrics` until `stop`, with the security of the broker."""

    def __init__(
        self,
        observed: MetricsSource,
        loop: asyncio.AbstractEventLoop,
        endpoint: MetricsEndpoint,
    ) -> None:
        registry = CollectorRegistry()
        registry.register(_Collector(observed, loop))
        ProcessCollector(registry=registry)
        super().__init__(endpoint, lambda: generate_latest(registry))


class _Collector:
    def __init__(self, observed: MetricsSource, loop: asyncio.AbstractEventLoop) -> None:
        self._observed = observed
        self._node = observed.node
        self._loop = loop

    def collect(self) -> Iterator[Metric]:
        yield from self._requests()
        yield from self._connections()
        yield from self._memory()
        yield from self._topics()
        yield from self._partitions()
        yield from self._groups()
        yield from self._transactions()

    def _requests(self) -> Iterator[Metric]:
        counters = self._node.counters
        requests = CounterMetricFamily(
            "headworks_broker_requests", "Requests by API.", labels=["api"]
        )
        for key, count in tuple(counters.requests.items()):
            requests.add_metric([APIS[key].name], count)
        yield requests
        seconds = HistogramMetricFamily(
            "headworks_broker_request_seconds",
            "From request to answer, time to wait for data or members included.",
            labels=["api"],
        )
        for key, histogram in tuple(counters.seconds.items()):
            _add(seconds, [APIS[key].name], histogram)
        yield seconds
        errors = CounterMetricFamily(
            "headworks_broker_errors", "Errors answered.", labels=["api", "error"]
        )
        for (key, code), count in tuple(counters.errors.items()):
            name = ErrorCode(code).name if code in set(ErrorCode) else str(code)
            errors.add_metric([APIS[key].name, name.lower()], count)
        yield errors
        denied = CounterMetricFamily(
            "headworks_broker_denied", "Refused by the grants.", labels=["api"]
        )
        for key, count in tuple(counters.denied.items()):
            denied.add_metric([APIS[key].name], count)
        yield denied

    def _connections(self) -> Iterator[Metric]:
        counters = self._node.counters
        for name, value, text in (
            (
                "headworks_broker_received_bytes",
                counters.received_bytes,
                "Bytes received from clients.",
            ),
            ("headworks_broker_sent_bytes", counters.sent_bytes, "Bytes sent to clients."),
            ("headworks_broker_connections_accepted", counters.accepted, "Connections accepted."),
            (
                "headworks_broker_connections_refused",
                counters.refused,
                "Connections over the limit.",
            ),
        ):
            yield CounterMetricFamily(name, text, value=value)
        failed = CounterMetricFamily(
            "headworks_broker_connections_failed",
            "Connections closed for a reason.",
            labels=["reason"],
        )
        for kind, count in tuple(counters.failed.items()):
            failed.add_metric([kind], count)
        yield failed
        logins = CounterMetricFamily(
            "headworks_broker_logins", "Logins.", labels=["mechanism", "outcome"]
        )
        for labels, count in tuple(counters.logins.items()):
            logins.add_metric(labels, count)
        yield logins
        principals = Counter(c.client.principal.name for c in self._observed.connections())
        found = GaugeMetricFamily(
            "headworks_broker_connections", "Open connections.", labels=["principal"]
        )
        for name, count in _bounded(principals, _MAX_PRINCIPALS).items():
            found.add_metric([name], count)
        yield found

    def _memory(self) -> Iterator[Metric]:
        memory = self._observed.memory
        held = sum(connection.unsent for connection in self._observed.connections())
        for name, value, text in (
            (
                "headworks_broker_request_memory_bytes",
                memory.size - memory.available,
                "Taken by requests.",
            ),
            (
                "headworks_broker_request_memory_limit_bytes",
                memory.size,
                "Memory that requests may take.",
            ),
            ("headworks_broker_held_reply_bytes", held, "Replies that clients have not read."),
        ):
            yield GaugeMetricFamily(name, text, value=value)
        flushes = HistogramMetricFamily(
            "headworks_broker_flush_seconds", "Putting a partition on disk."
        )
        _add(flushes, [], self._node.counters.flushes)
        yield flushes
        cut = self._node.hosted.cut_bytes
        yield CounterMetricFamily(
            "headworks_broker_recovery_cut_bytes", "Bytes cut at start.", value=cut
        )
        compaction = self._node.hosted.compactor.counters
        scrubber = self._node.hosted.scrubber
        for name, amount, text in (
            ("headworks_broker_scrub_passes", scrubber.passes, "Passes over all sealed segments."),
            (
                "headworks_broker_scrubbed_bytes",
                scrubber.read_bytes,
                "Bytes that the scrubber has read.",
            ),
            ("headworks_broker_compactions", compaction.runs, "Compactions of a partition."),
            (
                "headworks_broker_compactions_failed",
                compaction.failures,
                "Compactions that failed.",
            ),
            ("headworks_broker_compaction_seconds", compaction.seconds, "Time spent compacting."),
            (
                "headworks_broker_compaction_read_bytes",
                compaction.read_bytes,
                "Bytes of what was compacted.",
            ),
            (
                "headworks_broker_compaction_freed_bytes",
                compaction.freed_bytes,
                "Bytes that it removed.",
            ),
        ):
            yield CounterMetricFamily(name, text, value=amount)

    def _topics(self) -> Iterator[Metric]:
        counters = self._node.counters
        taken = CounterMetricFamily(
            "headworks_broker_topic_received_bytes", "Produced.", labels=_TOPIC
        )
        given = CounterMetricFamily("headworks_broker_topic_sent_bytes", "Fetched.", labels=_TOPIC)
        messages = CounterMetricFamily(
            "headworks_broker_topic_messages", "Messages ever written.", labels=_TOPIC
        )
        dead = CounterMetricFamily(
            "headworks_broker_topic_dead_letters", "Refused records.", labels=_TOPIC
        )
        segments = GaugeMetricFamily(
            "headworks_broker_topic_segments", "Segment files.", labels=_TOPIC
        )
        for topic in self._served():
            logs = [partition.log for partition in tuple(topic.partitions.values())]
            taken.add_metric([topic.name], sum(log.appended_bytes for log in logs))
            given.add_metric([topic.name], counters.fetched[topic.name])
            messages.add_metric([topic.name], sum(log.log_end_offset for log in logs))
            dead.add_metric([topic.name], counters.dead_letters[topic.name])
            segments.add_metric([topic.name], sum(len(log.segments) for log in logs))
        yield from (taken, given, messages, dead, segments)
        topics = len(self._node.hosted.topics)
        yield GaugeMetricFamily("headworks_broker_topics", "Topics.", value=topics)
        producers = self._node.hosted.producers.count
        yield GaugeMetricFamily(
            "headworks_broker_producers", "Producers remembered.", value=producers
        )

    def _partitions(self) -> Iterator[Metric]:
        end = GaugeMetricFamily(
            "headworks_broker_log_end", "Next offset to write.", labels=_PARTITION
        )
        seen = GaugeMetricFamily(
            "headworks_broker_log_visible", "Next offset to show.", labels=_PARTITION
        )
        start = GaugeMetricFamily(
            "headworks_broker_log_start", "First offset kept.", labels=_PARTITION
        )
        size = GaugeMetricFamily("headworks_broker_log_bytes", "Bytes on disk.", labels=_PARTITION)
        damage = GaugeMetricFamily(
            "headworks_broker_log_damage", "Damaged places.", labels=_PARTITION
        )
        served = GaugeMetricFamily(
            "headworks_broker_log_writable", "1 if it is.", labels=_PARTITION
        )
        for topic in self._served():
            for partition in tuple(topic.partitions.values()):
                labels, log = [topic.name, str(partition.index)], partition.log
                end.add_metric(labels, log.log_end_offset)
                seen.add_metric(labels, log.high_watermark)
                start.add_metric(labels, log.log_start_offset)
                size.add_metric(labels, log.size)
                damage.add_metric(labels, len(partition.damage))
                served.add_metric(labels, int(partition.writable))
            for index in tuple(topic.refused):
                served.add_metric([topic.name, str(index)], 0)
        yield from (end, seen, start, size, damage, served)

    def _groups(self) -> Iterator[Metric]:
        groups = tuple(self._node.groups.groups.values())
        members = sum(len(group.members) for group in groups)
        yield GaugeMetricFamily(
            "headworks_broker_groups", "Groups with members.", value=len(groups)
        )
        yield GaugeMetricFamily(
            "headworks_broker_group_members", "Members of groups.", value=members
        )
        lag = GaugeMetricFamily(
            "headworks_broker_group_lag",
            "Messages not yet committed by a group.",
            labels=["group", "topic"],
        )
        asked = asyncio.run_coroutine_threadsafe(self._lags(), self._loop)
        try:
            for labels, value in asked.result(_LAG_TIMEOUT_SECONDS).items():
                lag.add_metric(labels, value)
        except TimeoutError:
            asked.cancel()
        yield lag

    def _transactions(self) -> Iterator[Metric]:
        transactions = self._node.transactions
        if transactions is None:
            return
        began = [one.started_ms / 1000 for one in transactions.ongoing()]
        oldest = self._node.clock() - min(began) if began else 0.0
        counters = transactions.counters
        yield GaugeMetricFamily(
            "headworks_broker_transactions_open", "Not ended yet.", value=len(began)
        )
        yield GaugeMetricFamily(
            "headworks_broker_transaction_oldest_seconds", "Its age.", value=oldest
        )
        for name, amount, text in (
            (
                "headworks_broker_transactions_committed",
                counters.committed,
                "Committed transactions.",
            ),
            (
                "headworks_broker_transactions_aborted",
                counters.aborted,
                "Aborted, for whatever reason.",
            ),
            (
                "headworks_broker_producers_fenced",
                counters.fenced,
                "Producers whose epoch was ended.",
            ),
        ):
            yield CounterMetricFamily(name, text, value=amount)

    async def _lags(self) -> Mapping[tuple[str, str], int]:
        node = self._node
        lags: Counter[tuple[str, str]] = Counter()
        groups = [group for group in await node.coordination.groups() if coordinates(node, group)]
        for group in sorted(groups)[:_MAX_GROUPS]:
            for (topic, index), at in (await node.coordination.offsets(group)).items():
                partition = node.hosted.partition(topic, index)
                if partition is not None and at.offset >= 0:
                    lags[group, topic] += max(0, partition.log.high_watermark - at.offset)
        return lags

    def _served(self) -> Iterator[HostedTopic]:
        topics: Any = tuple(self._node.hosted.topics.values())
        return islice(sorted(topics, key=lambda topic: topic.name), _MAX_TOPICS)


def _add(family: HistogramMetricFamily, labels: list[str], histogram: Histogram) -> None:
    total, buckets = 0, []
    for bound, count in zip((*map(str, BOUNDS), "+Inf"), tuple(histogram.counts), strict=True):
        total += count
        buckets.append((bound, total))
    family.add_metric(labels, buckets, histogram.total)


def _bounded(counts: Counter[str], most: int) -> dict[str, int]:
    """Return the largest counts, and the sum of the others under one name."""
    kept = dict(counts.most_common(most))
    rest = counts.total() - sum(kept.values())
    return kept | ({_OTHERS: rest} if rest else {})
