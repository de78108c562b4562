"""`headworks audit run`: the reconciler as a service."""

from __future__ import annotations

import json
import signal
import sys
import threading
from typing import TYPE_CHECKING, Annotated

import typer

from headworks._cli.audit_store import store_url
from headworks._cli.broker_address import ZooKeeper, address_of
from headworks._cli.output import Format, FormatOption
from headworks._cli.times import span
from headworks._settings import resolve

if TYPE_CHECKING:
    from headworks._audit.metrics import Metrics

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
    from headworks._audit.alerts import post_to
    from headworks._audit.findings import Thresholds
    from headworks._audit.metrics import Metrics
    from headworks._audit.reconciler import Reconciler
    from headworks._audit.service import Running
    from headworks._audit.store import AuditStore
    from headworks._audit.store.retention import Kept
    from headworks._server import logs

    logs.configure(resolve("log_format", log_format), resolve("log_level", log_level))
    thresholds = Thresholds(
        sla=sla / 100,
        complete_within=span("--complete-within", complete_within),
        silent_after=span("--silent-after", silent_after),
        skew=span("--max-skew", max_skew),
    )
    kept = Kept(span("--keep-details", keep_details), span("--keep-sums", keep_sums))
    every = span("--look-every", look_every) / 1000
    shown = Metrics()
    opened = AuditStore(store_url(store))
    try:
        at = _expose(shown, metrics, insecure)
        where = address_of(bootstrap, zookeeper)
        with Reconciler(where, resolve("registry", registry), opened) as reconciler:
            _ready(at, where, format)
            post = None if alert_webhook is None else post_to(alert_webhook)
            Running(reconciler, opened, shown, thresholds, kept, post, every).run(stop)
    finally:
        opened.close()


def _expose(metrics: Metrics, listen: str | None, insecure: bool) -> str:
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
