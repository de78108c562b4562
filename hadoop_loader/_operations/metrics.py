"""The loader's Prometheus metrics: on a page while it runs, or in a file after each run.

Rules: the numbers come from the commit log and the last run, so a restarted loader continues them.
The labels are topics of the warehouse, so their number is bounded. The page follows the exposure
rule of all our servers (`metrics_page`).
"""

from __future__ import annotations

import time
from pathlib import Path

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    generate_latest,
    write_to_textfile,
)

from hadoop_loader._commit.commit_log import CommitLog
from hadoop_loader._commit.report import LoadReport
from hadoop_loader._storage.filesystem import AnyPath
from headworks._server.metrics_page import MetricsEndpoint, MetricsPage
from headworks.errors import UsageError

_PREFIX = "headworks_loader"
_PER_TOPIC = {
    "rows": "rows in the topic's table",
    "files": "files of the topic's table",
    "quarantined": "messages set aside",
    "lost": "messages that retention removed before they were loaded",
    "damaged": "messages in damaged batches that were skipped",
    "schema_version": "version of the schema that the table has",
    "loaded_timestamp_seconds": "when the topic was last loaded",
}


class LoaderMetrics:
    """The gauges and counters of one loader on the warehouse at `root`."""

    def __init__(self, root: AnyPath) -> None:
        self._log = CommitLog(root / "_headworks")
        self._registry = CollectorRegistry()
        self._topics = {
            name: Gauge(f"{_PREFIX}_topic_{name}", text, ["topic"], registry=self._registry)
            for name, text in _PER_TOPIC.items()
        }
        self._offset = Gauge(
            f"{_PREFIX}_offset",
            "next offset to load",
            ["topic", "partition"],
            registry=self._registry,
        )
        self._runs = Counter(f"{_PREFIX}_runs", "loads run", ["outcome"], registry=self._registry)
        self._seconds = Gauge(
            f"{_PREFIX}_phase_seconds", "time of the last run", ["phase"], registry=self._registry
        )
        self._refused = Gauge(
            f"{_PREFIX}_topics_refused",
            "topics that the last run skipped",
            registry=self._registry,
        )
        self._ungoverned = Gauge(
            f"{_PREFIX}_topics_ungoverned", "topics without a schema", registry=self._registry
        )
        self._leaderless = Gauge(
            f"{_PREFIX}_partitions_leaderless",
            "partitions that the last run skipped because they had no leader",
            registry=self._registry,
        )
        self._damaged = Gauge(
            f"{_PREFIX}_partitions_damaged",
            "partitions that the last run loaded up to a damaged batch",
            registry=self._registry,
        )
        self._success = Gauge(
            f"{_PREFIX}_last_success_timestamp_seconds",
            "when a run last succeeded",
            registry=self._registry,
        )
        self._standby = Gauge(
            f"{_PREFIX}_standby",
            "1 while this loader waits for another one that holds the warehouse",
            registry=self._registry,
        )
        for outcome in ("succeeded", "failed"):
            self._runs.labels(outcome)  # a counter that begins at its first event hides it
        last = self._log.latest()
        # Without a load since its start, a loader is as late as the last commit is old.
        self._success.set(last.created_ms / 1000 if last else time.time())
        self.refresh()

    def loaded(self, report: LoadReport) -> None:
        """Count a run that succeeded."""
        self._runs.labels("succeeded").inc()
        self._success.set(time.time())
        self._seconds.clear()
        for phase, seconds in report.seconds.items():
            self._seconds.labels(phase).set(seconds)
        if report.compacted is not None:
            self._seconds.labels("compact").set(report.compacted.seconds)
        self._refused.set(len(report.refused))
        self._ungoverned.set(len(report.ungoverned))
        self._leaderless.set(sum(len(one.offsets) for one in report.leaderless))
        self._damaged.set(sum(len(one.offsets) for one in report.damaged))
        self.refresh()

    def failed(self) -> None:
        """Count a run that failed."""
        self._runs.labels("failed").inc()

    def stand_by(self, *, waits: bool) -> None:
        """Tell whether this loader waits for another one, which alone exports topics meanwhile."""
        self._standby.set(waits)
        if not waits:
            self.refresh()
            return
        for gauge in (*self._topics.values(), self._offset):
            gauge.clear()

    def refresh(self) -> None:
        """Set the gauges to what the commit log says."""
        last = self._log.latest()
        for topic, state in (last.tables if last else {}).items():
            for name in ("rows", "files", "quarantined", "lost", "damaged"):
                self._topics[name].labels(topic).set(getattr(state, name))
            self._topics["schema_version"].labels(topic).set(state.version)
            self._topics["loaded_timestamp_seconds"].labels(topic).set(state.loaded_ms / 1000)
        for topic, partitions in (last.offsets if last else {}).items():
            for partition, offset in partitions.items():
                self._offset.labels(topic, partition).set(offset)

    def serve(self, endpoint: MetricsEndpoint) -> str:
        """Serve the metrics page until the process ends, and return its URL."""
        return MetricsPage(endpoint, lambda: generate_latest(self._registry)).url

    def write(self, path: Path) -> None:
        """Replace a file for a collector of text files; UsageError if it cannot be written."""
        try:
            write_to_textfile(str(path), self._registry)
        except OSError as error:
            raise UsageError(
                f"metrics cannot be written to {path}: {error.strerror or error}",
                fix="give --metrics-file a path that you may write to",
            ) from None
