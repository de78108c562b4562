"""The alert rules and dashboards: every rule fires for its trouble, and every metric exists.

The troubles are series given to the rules' expressions, because many take long to cause. The names
of the metrics are those of running servers and of the collectors that the others serve.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from prometheus_client import CollectorRegistry, generate_latest

from hadoop_loader._operations.metrics import LoaderMetrics
from headworks._audit.metrics import AuditMetrics, take_snapshot
from headworks._audit.store import AuditStore
from headworks._cli.stack.ports import free_ports
from headworks._cli.stack.stack import running_stack
from headworks._mirror.metrics import MirrorMetrics
from headworks._mirror.progress import MirrorProgress
from headworks._server.metrics_page import MetricsEndpoint
from producer_sdk import Producer
from producer_sdk.prometheus import ProducerCollector
from tests.deploy.alert_troubles import BORN, TROUBLES
from tests.tools import needs

pytestmark = pytest.mark.unit

ROOT = Path(__file__).parent.parent.parent
FILES = sorted((ROOT / "deploy" / "alerts").glob("*.yml"))
BOARDS = sorted((ROOT / "deploy" / "grafana" / "dashboards").glob("*.json"))
METRIC = re.compile(r"\b(?:headworks|process)_\w+")
HEALTH = (
    *(f'up{{job="headworks",server="{name}"}} 1x180' for name in ("broker", "registry", "load")),
    'process_open_fds{job="headworks",server="broker"} 20x180',
    'process_max_fds{job="headworks",server="broker"} 65536x180',
    'headworks_broker_log_writable{topic="t",partition="0"} 1x180',
    'headworks_broker_log_damage{topic="t",partition="0"} 0x180',
    "headworks_broker_recovery_cut_bytes_total 0x180",
    'headworks_broker_errors_total{api="fetch",error="offset_out_of_range"} 0+1x180',
    "headworks_broker_connections_refused_total 0x180",
    'headworks_broker_flush_seconds_bucket{le="1.0"} 0+60x180',
    'headworks_broker_flush_seconds_bucket{le="+Inf"} 0+60x180',
    # A group that is read every quarter of an hour, and the last message of a slow topic.
    'headworks_broker_group_lag{group="nightly",topic="t"} ' + "0+500x14 " * 12,
    'headworks_broker_group_lag{group="idle",topic="t"} 0x180',
    'headworks_registry_requests_total{route="/subjects",method="GET",status="404"} 0+5x180',
    # A load every ten minutes.
    "headworks_loader_last_success_timestamp_seconds "
    + " ".join(f"{600 * n}x9" for n in range(18)),
    # A loader that stands by beside it.
    'headworks_loader_last_success_timestamp_seconds{instance="b"} 0x180',
    'headworks_loader_standby{instance="b"} 1x180',
    'headworks_loader_runs_total{outcome="failed"} 0x30 1x149',
    'headworks_loader_runs_total{outcome="succeeded"} 0+1x180',
    "headworks_loader_topics_refused 0x180",
    'headworks_loader_topic_quarantined{topic="t"} 7x180',
    'headworks_loader_topic_quarantined{topic="new"} ' + "_ " * 100 + "0x79",
    # A loader that moved to another machine, with losses of long ago.
    *(
        f'headworks_loader_topic_{name}{{instance="{at}",pod="{at}",topic="old"}} {values}'
        for name in ("quarantined", "lost", "damaged")
        for at, values in (("a", "7x100"), ("b", "_x101 7x78"))
    ),
    'headworks_mirror_lag_seconds{source="s",topic="t"} 5x180',
    'headworks_mirror_checkpoint_age_seconds{source="s"} 5x180',
    'headworks_mirror_lag_messages{source="s",topic="t"} 5x180',
    'headworks_audit_messages{tier="hadoop",state="attempted"} 1000+100x180',
    'headworks_audit_messages{tier="hadoop",state="waiting"} 100x180',
    'headworks_audit_messages{tier="hadoop",state="lost"} 0x180',
    'headworks_audit_complete_seconds{tier="hadoop",quantile="0.95"} 700x180',
    "headworks_audit_hole_messages 0x180",
    "headworks_audit_behind_messages 12x180",
    "headworks_audit_last_look_timestamp_seconds 0+60x180",
)


def rules() -> Iterator[tuple[Path, dict[str, Any]]]:
    for path in FILES:
        for group in yaml.safe_load(path.read_text(encoding="utf-8"))["groups"]:
            for rule in group["rules"]:
                yield path, rule


def expressions() -> Iterator[tuple[str, str]]:
    """The expressions of all rules and panels, and where each is."""
    for path, rule in rules():
        yield f"{path.name} {rule['alert']}", rule["expr"]
    for path in BOARDS:
        for panel in json.loads(path.read_text(encoding="utf-8"))["panels"]:
            for target in panel["targets"]:
                yield f"{path.name} {panel['title']}", target["expr"]


def test_every_rule_has_a_severity_a_runbook_and_a_trouble() -> None:
    names = [rule["alert"] for _, rule in rules()]
    assert len(names) == len({*names})
    assert {*names} == {*TROUBLES}
    for path, rule in rules():
        assert rule["labels"]["severity"] in ("page", "ticket"), rule["alert"]
        page, _, anchor = rule["annotations"]["runbook"].partition("#")
        assert Path(page).stem == path.stem
        text = (ROOT / page).read_text(encoding="utf-8")
        section = re.search(rf"^## {rule['alert']}\n\n(.+?)(?=^## |\Z)", text, re.M | re.S)
        assert section, rule["alert"]
        assert anchor == rule["alert"].lower()
        assert "\n1. " in section[1], f"{rule['alert']}: what is to be done?"


def test_every_finding_has_a_rule() -> None:
    from headworks._audit.findings import KINDS

    told = {kind for _, rule in rules() for kind in re.findall(r"[a-z]+", rule["expr"])}
    assert {*KINDS} - told == {"holes"}  # which is a metric of its own


def test_every_board_has_an_identity_and_panels_that_do_not_overlap() -> None:
    boards = [json.loads(path.read_text(encoding="utf-8")) for path in BOARDS]
    assert [board["uid"] for board in boards] == [path.stem for path in BOARDS]
    for board in boards:
        places = [(panel["gridPos"]["x"], panel["gridPos"]["y"]) for panel in board["panels"]]
        assert len(places) == len({*places})
        assert {panel["datasource"]["uid"] for panel in board["panels"]} == {"prometheus"}


@pytest.fixture(scope="module")
def metrics(tmp_path_factory: pytest.TempPathFactory) -> set[str]:
    """The names of all metrics that a running pipeline serves."""
    folder = tmp_path_factory.mktemp("metrics")
    pages = []
    (port,) = free_ports(1)
    with running_stack(folder, metrics=f"127.0.0.1:{port}") as stack:
        broker, registry = stack.broker, stack.registry
        for url in (f"http://127.0.0.1:{port}/metrics", f"{registry.url}/metrics"):
            with urllib.request.urlopen(url) as answer:
                pages.append(answer.read().decode())
        collectors = CollectorRegistry()
        producer = Producer(broker.address, registry.url, application="a", state_dir=folder / "p")
        collectors.register(ProducerCollector(producer, application="a"))
        pages.append(generate_latest(collectors).decode())
        producer.close()
    pages.append(generate_latest(LoaderMetrics(folder / "warehouse")._registry).decode())
    store = AuditStore(f"sqlite:///{folder / 'audit.db'}")
    audit = AuditMetrics()
    audit.last = take_snapshot(store, 0, [])
    pages.append(generate_latest(audit.registry).decode())
    store.close()
    endpoint = MetricsEndpoint.parse("127.0.0.1:0")
    page = MirrorMetrics(endpoint, [MirrorProgress("s")])
    with urllib.request.urlopen(page.url) as answer:
        pages.append(answer.read().decode())
    page.stop()
    return set(re.findall(r"^# TYPE (\S+)", "\n".join(pages), re.M))


@pytest.mark.e2e
def test_every_metric_of_a_rule_or_a_panel_exists(metrics: set[str]) -> None:
    assert {name.partition("_")[0] for name in metrics} == {"headworks", "process"}
    for where, expression in expressions():
        used = set(METRIC.findall(expression))
        assert used or "up{" in expression, where
        for name in used:
            assert {name, name.removesuffix("_bucket")} & metrics, f"{where}: {name}"


@needs("promtool")
@pytest.mark.contract
def test_every_rule_fires_for_its_trouble_and_none_in_three_hours_of_health(
    tmp_path: Path,
) -> None:
    def count(alert: str, state: str = "firing") -> str:
        return f'count(ALERTS{{alertname=~"{alert}",alertstate="{state}"}})'

    def case(series: tuple[str, ...], alert: str, at: str, fires: bool) -> dict[str, Any]:
        found = [{"labels": "{}", "value": 1}] if fires else []
        notation = [one.split(" ", 1) if "{" not in one else one.split("} ", 1) for one in series]
        return {
            "name": alert,
            "interval": "1m",
            "input_series": [
                {"series": name + "}" * ("{" in name), "values": values.strip()}
                for name, values in notation
            ],
            "promql_expr_test": [
                {"expr": f"{count(alert)} > bool 0", "eval_time": at, "exp_samples": found}
            ],
        }

    for path in FILES:
        shutil.copy(path, tmp_path / path.name)
    cases = [
        case(series, alert, "239m" if "offset 2h" in expr else "119m", fires=True)
        for (alert, series), expr in zip(
            TROUBLES.items(), (rule["expr"] for _, rule in _in_order()), strict=True
        )
    ]
    cases += [case(series, alert, "119m", fires=True) for alert, series in BORN.items()]
    health = [case(HEALTH, ".+", f"{minute}m", fires=False) for minute in (30, 60, 120, 175)]
    document = {
        "rule_files": [path.name for path in FILES],
        "evaluation_interval": "1m",
        "tests": [*cases, *health],
    }
    (tmp_path / "tests.yml").write_text(yaml.safe_dump(document), encoding="utf-8")
    done = subprocess.run(
        ["promtool", "test", "rules", "tests.yml"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr + done.stdout


def _in_order() -> list[tuple[Path, dict[str, Any]]]:
    found = {rule["alert"]: (path, rule) for path, rule in rules()}
    return [found[alert] for alert in TROUBLES]
