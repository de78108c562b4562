"""`headworks audit run`: the reconciler as a service."""

from __future__ import annotations

import json
import signal
import sys
import threading
from typing import TYPE_CHECKING, Annotated

import typer

from headworks._cli.audit_store import store_url
from headworks._cli.broker_address import ZooKeeper, bootstrap_servers
from headworks._cli.output import Format, FormatOption
from headworks._cli.times import parse_duration_ms
from headworks._settings import resolve

if TYPE_CHECKING:
    from headworks._audit.metrics import AuditMetrics

__all__ = ["run"]


def run(
    store: Annotated[
        str | None,
        typer.Option(help="sqlite:///FILE or postgresql://.. (setting audit_store)"),
    ] = None,
    bootstrap: Annotated[str | None, typer.Option(help="address of the broker")] = None,
    zookeeper: ZooKeeper = None,
    registry: Annotated[str | None, typer.Option(help="address of the registry")] = None,
    metrics: Annotated[
        str | None, typer.Option(help="HOST:PORT for Prometheus to scrape; port 0: any")
    ] = None,
    insecure: Annotated[
        bool, typer.Option("--insecure", help="show metrics beyond this machine, to everybody")
    ] = False,
    alert_webhook: Annotated[
        str | None, typer.Option(help="URL that is told, as JSON, what is wrong")
    ] = None,
    sla: Annotated[
        float, typer.Option(min=0, max=100, help="percent of a window that must be there")
    ] = 99.9,
    complete_within: Annotated[
        str, typer.Option(help="how long after its end a window is judged: 30m, 2h")
    ] = "30m",
    silent_after: Annotated[
        str, typer.Option(help="how long a tier may count nothing while producers do")
    ] = "30m",
    max_skew: Annotated[str, typer.Option(help="how wrong a clock may be")] = "60s",
    look_every: Annotated[str, typer.Option(help="how often to look for what is wrong")] = "30s",
    keep_details: Annotated[
        str, typer.Option(help="how long to remember who counted what, and which ids")
    ] = "14d",
    keep_sums: Annotated[str, typer.Option(help="how long to keep sums")] = "400d",
    log_format: Annotated[
        str | None, typer.Option(help="text, or json: one object a line (setting log_format)")
    ] = None,
    log_level: Annotated[
        str | None, typer.Option(help="debug, info, warning or error (setting log_level)")
    ] = None,
    format: FormatOption = Format.TEXT,
) -> None:
    """Follow the audit topic into a store, with metrics and alerts, until SIGTERM or Ctrl-C."""
    from headworks._server.child_process import end_with_parent

    end_with_parent()
    stop = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stop.set())
    from headworks._audit.alerts import webhook
    from headworks._audit.findings import Thresholds
    from headworks._audit.metrics import AuditMetrics
    from headworks._audit.reconciler import Reconciler
    from headworks._audit.service import AuditService
    from headworks._audit.store import AuditStore
    from headworks._audit.store.retention import Retention
    from headworks._server import logs

    logs.configure(resolve("log_format", log_format), resolve("log_level", log_level))
    thresholds = Thresholds(
        sla=sla / 100,
        complete_within_ms=parse_duration_ms("--complete-within", complete_within),
        silent_after_ms=parse_duration_ms("--silent-after", silent_after),
        max_skew_ms=parse_duration_ms("--max-skew", max_skew),
    )
    retention = Retention(
        parse_duration_ms("--keep-details", keep_details),
        parse_duration_ms("--keep-sums", keep_sums),
    )
    every = parse_duration_ms("--look-every", look_every) / 1000
    shown_metrics = AuditMetrics()
    opened = AuditStore(store_url(store))
    try:
        at = _expose(shown_metrics, metrics, insecure)
        where = bootstrap_servers(bootstrap, zookeeper)
        with Reconciler(where, resolve("registry", registry), opened) as reconciler:
            _ready(at, where, format)
            post = None if alert_webhook is None else webhook(alert_webhook)
            AuditService(reconciler, opened, shown_metrics, thresholds, retention, post, every).run(
                stop
            )
    finally:
        opened.close()


def _expose(metrics: AuditMetrics, listen: str | None, insecure: bool) -> str:
    """Serve the metrics; the address, or nothing."""
    if listen is None:
        return ""
    from prometheus_client import generate_latest

    from headworks._server.metrics_page import MetricsEndpoint, MetricsPage

    endpoint = MetricsEndpoint.parse(listen, insecure=insecure)
    return MetricsPage(endpoint, lambda: generate_latest(metrics.registry)).address


def _ready(metrics: str, bootstrap: str, form: Format) -> None:
    if form is Format.JSON:
        line = json.dumps({"service": "audit", "listen": metrics})
    else:
        line = f"audit: reconciling {bootstrap}" + (f", metrics at {metrics}" if metrics else "")
    sys.stdout.write(line + "\n")
    sys.stdout.flush()
