"""`headworks audit run`: the reconciler as a service."""

from __future__ import annotations

import json
import signal
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated

import typer

from headworks._cli.audit_store import AuditOptions
from headworks._cli.option_groups import expand_groups
from headworks._cli.output import Format, FormatOption
from headworks._cli.server_options import LogOptions
from headworks._cli.times import parse_duration_ms
from headworks._settings import resolve_optional
from headworks._stop_event import StopEvent

if TYPE_CHECKING:
    from headworks._audit.metrics import AuditMetrics
    from headworks._audit.store.retention import Retention
    from headworks._audit.thresholds import Thresholds


@dataclass(frozen=True, slots=True)
class CheckOptions:
    """The checks of the reconciler, their interval, and the webhook for alerts."""

    alert_webhook: Annotated[
        str | None, typer.Option(help="post new and resolved findings to this URL, as JSON")
    ] = None
    sla: Annotated[
        float, typer.Option(min=0, max=100, help="percent of a window that must have arrived")
    ] = 99.9
    complete_within: Annotated[
        str, typer.Option(help="check a window this long after its end: 30m, 2h")
    ] = "30m"
    silent_after: Annotated[
        str,
        typer.Option(help="report a tier that counts nothing for this long while producers do"),
    ] = "30m"
    max_skew: Annotated[str, typer.Option(help="report a clock that differs by more than this")] = (
        "60s"
    )
    look_every: Annotated[str, typer.Option(help="check at this interval")] = "30s"

    @property
    def thresholds(self) -> Thresholds:
        """The thresholds. Raises UsageError for a duration that is none."""
        from headworks._audit.thresholds import Thresholds

        return Thresholds(
            sla=self.sla / 100,
            complete_within_ms=parse_duration_ms("--complete-within", self.complete_within),
            silent_after_ms=parse_duration_ms("--silent-after", self.silent_after),
            max_skew_ms=parse_duration_ms("--max-skew", self.max_skew),
        )


@dataclass(frozen=True, slots=True)
class RetentionOptions:
    """How long the store keeps what it read."""

    keep_details: Annotated[
        str, typer.Option(help="retain ids, and which host counted what, for this long")
    ] = "14d"
    keep_sums: Annotated[str, typer.Option(help="retain the sums for this long")] = "400d"

    @property
    def retention(self) -> Retention:
        """The retention. Raises UsageError for a duration that is none."""
        from headworks._audit.store.retention import Retention

        return Retention(
            parse_duration_ms("--keep-details", self.keep_details),
            parse_duration_ms("--keep-sums", self.keep_sums),
        )


@expand_groups
def run(
    source: AuditOptions,
    checks: CheckOptions,
    retention: RetentionOptions,
    log: LogOptions,
    metrics: Annotated[
        str | None, typer.Option(help="serve Prometheus metrics on this HOST:PORT; port 0: any")
    ] = None,
    insecure: Annotated[
        bool, typer.Option("--insecure", help="let other machines read the metrics")
    ] = False,
    format: FormatOption = Format.TEXT,
) -> None:
    """Follow the audit topic into a store, with metrics and alerts, until SIGTERM or Ctrl-C."""
    from headworks._server.child_process import end_with_parent

    end_with_parent()
    stop = StopEvent()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stop.set())
    from headworks._audit.alerts import webhook
    from headworks._audit.metrics import AuditMetrics
    from headworks._audit.reconciler import Reconciler
    from headworks._audit.sampler import BrokerMeasure, Sampler
    from headworks._audit.service import AuditService
    from headworks._audit.store import AuditStore

    log.configure()
    thresholds, kept = checks.thresholds, retention.retention
    check_seconds = parse_duration_ms("--look-every", checks.look_every) / 1000
    figures = AuditMetrics()
    store = AuditStore(source.store_url)
    try:
        at = _serve_metrics(figures, metrics, insecure)
        servers = source.servers
        with Reconciler(servers, source.registry_url, store) as reconciler:
            _print_ready(at, servers, format)
            zookeeper = resolve_optional("zookeeper", source.zookeeper)
            Sampler(store, BrokerMeasure(store, servers, zookeeper)).start(stop)
            post = None if checks.alert_webhook is None else webhook(checks.alert_webhook)
            AuditService(reconciler, store, figures, thresholds, kept, post, check_seconds).run(
                stop
            )
    finally:
        store.close()


def _serve_metrics(metrics: AuditMetrics, listen: str | None, insecure: bool) -> str:
    """Serve the metrics page in the background. Return its HOST:PORT, or "" without a page."""
    if listen is None:
        return ""
    from prometheus_client import generate_latest

    from headworks._server.metrics_page import MetricsEndpoint, MetricsPage

    endpoint = MetricsEndpoint.parse(listen, insecure=insecure)
    return MetricsPage(endpoint, lambda: generate_latest(metrics.registry)).address


def _print_ready(metrics: str, bootstrap: str, format: Format) -> None:
    if format is Format.JSON:
        line = json.dumps({"service": "audit", "listen": metrics})
    else:
        line = f"audit: reconciling {bootstrap}" + (f", metrics at {metrics}" if metrics else "")
    sys.stdout.write(line + "\n")
    sys.stdout.flush()
