"""Prometheus metrics over HTTP, for who asks for them with `--metrics HOST:PORT`.

Rules: nothing is measured for this that the server does not count anyway; a scrape reads those
numbers from its own thread and touches nothing else. prometheus-client is imported only here.
"""

from __future__ import annotations

from collections.abc import Iterator
from threading import Thread
from typing import TYPE_CHECKING, Any

from prometheus_client import CollectorRegistry, start_http_server
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from broker.protocol import APIS
from headworks.errors import UsageError

if TYPE_CHECKING:
    from broker.server.server import BrokerServer

__all__ = ["MetricsServer"]

_PARTITION = ["topic", "partition"]


class MetricsServer:
    """Serves `/metrics` until `stop`."""

    def __init__(self, server: BrokerServer, host: str, port: int) -> None:
        registry = CollectorRegistry()
        registry.register(_Collector(server))
        try:
            found: Any = start_http_server(port, host, registry)
        except OSError as error:
            raise UsageError(
                f"cannot serve metrics on {host}:{port}: {error.strerror or error}",
                fix="give another --metrics HOST:PORT",
            ) from None
        self._http, self._thread = found[0], found[1]
        assert isinstance(self._thread, Thread)

    @property
    def port(self) -> int:
        """The port that it serves on."""
        return int(self._http.server_port)

    def stop(self) -> None:
        """End the thread and close the port."""
        self._http.shutdown()
        self._http.server_close()
        self._thread.join()


class _Collector:
    def __init__(self, server: BrokerServer) -> None:
        self._server = server

    def collect(self) -> Iterator[Metric]:
        counters = self._server.counters
        requests = CounterMetricFamily("broker_requests", "Requests by API.", labels=["api"])
        for key, count in tuple(counters.requests.items()):
            requests.add_metric([APIS[key].name], count)
        yield requests
        for name, value, text in (
            ("broker_received_bytes", counters.received_bytes, "Bytes received from clients."),
            ("broker_connections_accepted", counters.accepted, "Connections accepted."),
            ("broker_connections_refused", counters.refused, "Connections over the limit."),
            ("broker_connections_failed", counters.failed, "Connections closed for a reason."),
            ("broker_recovery_cut_bytes", self._server.node.catalogue.cut_bytes, "Bytes cut."),
        ):
            yield CounterMetricFamily(name, text, value=value)
        yield GaugeMetricFamily(
            "broker_connections", "Open connections.", value=self._server.connections
        )
        yield GaugeMetricFamily(
            "broker_groups", "Groups with members.", value=len(self._server.node.groups.groups)
        )
        yield from self._partitions()

    def _partitions(self) -> Iterator[Metric]:
        end = GaugeMetricFamily("broker_log_end", "Next offset to write.", labels=_PARTITION)
        seen = GaugeMetricFamily("broker_log_visible", "Next offset to show.", labels=_PARTITION)
        start = GaugeMetricFamily("broker_log_start", "First offset kept.", labels=_PARTITION)
        size = GaugeMetricFamily("broker_log_bytes", "Bytes on disk.", labels=_PARTITION)
        served = GaugeMetricFamily("broker_log_writable", "1 if it is.", labels=_PARTITION)
        for topic in tuple(self._server.node.catalogue.topics.values()):
            for partition in tuple(topic.partitions.values()):
                labels, log = [topic.name, str(partition.index)], partition.log
                end.add_metric(labels, log.end)
                seen.add_metric(labels, log.visible)
                start.add_metric(labels, log.start_offset)
                size.add_metric(labels, log.size)
                served.add_metric(labels, int(partition.failure is None))
            for index in tuple(topic.refused):
                served.add_metric([topic.name, str(index)], 0)
        yield from (end, seen, start, size, served)
