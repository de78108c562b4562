"""A whole installation as processes: `headworks up`, a loader, traffic, and Prometheus.

Rules:

- Every process is ended by the block that started it.
- Prometheus reads the shipped alert rules, and a scrape configuration like deploy/prometheus.yml.
"""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import time
import urllib.parse
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from headworks._cli.stack.ports import free_ports
from headworks.registry_client import RegistryClient
from tests.soak.live_traffic import SCHEMAS
from tests.soak.process import PATIENCE, Child

_ROOT = Path(__file__).parent.parent.parent
RULES = _ROOT / "deploy" / "alerts"


@dataclass
class Installation:
    """The addresses (HOST:PORT) and the processes of an installation, by name."""

    folder: Path
    broker: str
    registry: str
    console: str
    metrics: Mapping[str, str]
    prometheus: str
    children: dict[str, Child] = field(default_factory=dict)

    def start(self, name: str, *command: str) -> Child:
        """Start a process; its words are in NAME.log."""
        self.children[name] = child = Child([*command], self.folder / f"{name}.log")
        return child

    def traffic(self, name: str, *arguments: str) -> Child:
        """Start a part of the traffic (see `live_traffic`)."""
        place = [self.broker, f"http://{self.registry}", str(self.folder / name)]
        return self.start(name, "tests.soak.live_traffic", *place, *arguments)

    def load(self, every: str, *options: str) -> Child:
        """Start the real loader."""
        command = ["cli", "load", "run", "--bootstrap", self.broker, "--every", every]
        command += ["--registry", f"http://{self.registry}", "--master", "local[1]"]
        command += ["--data-dir", str(self.folder / "data"), "--metrics", self.metrics["load"]]
        return self.start("load", *command, *options)

    def end(self, name: str) -> None:
        """End a process and its children: by SIGTERM, and by SIGKILL if that takes a minute."""
        child = self.children.pop(name)
        with suppress(ProcessLookupError):
            child.signal(signal.SIGTERM)
            try:
                child.process.wait(60)
            except subprocess.TimeoutExpired:
                child.signal(signal.SIGKILL)
                child.process.wait()

    def page(self, path: str) -> Any:
        """Return the data of a page of the console."""
        with urllib.request.urlopen(f"http://{self.console}{path}", timeout=60) as answer:
            return json.load(answer)["data"]

    def alerts(self) -> list[dict[str, Any]]:
        """Return Prometheus's alerts: firing ones, and those that wait for their `for`."""
        with urllib.request.urlopen(f"http://{self.prometheus}/api/v1/alerts") as answer:
            found: list[dict[str, Any]] = json.load(answer)["data"]["alerts"]
            return found


@contextmanager
def installation(folder: Path, *, scrape_seconds: int = 5) -> Iterator[Installation]:
    """Yield a running installation with registered schemas, without loader and traffic."""
    ports = [f"127.0.0.1:{port}" for port in free_ports(5)]
    broker, registry, console, prometheus, load = ports[:5]
    first = _two_free_ports()
    metrics = {"broker": f"127.0.0.1:{first}", "audit": f"127.0.0.1:{first + 1}"}
    metrics["load"] = load
    folder.mkdir(parents=True, exist_ok=True)
    one = Installation(folder, broker, registry, console, metrics, prometheus)
    try:
        up = ["up", "--data-dir", str(folder / "data"), "--broker", broker, "--registry", registry]
        one.start("up", "cli", *up, "--console", console, "--metrics", metrics["broker"])
        for each in (f"{registry}/health", f"{console}/home.json"):  # the console may come first
            until_answered(f"http://{each}")
        client = RegistryClient(f"http://{registry}")
        for subject, text in SCHEMAS.items():
            client.register(subject, text)
        targets = {**metrics, "registry": registry}
        watching = start_prometheus(folder / "prometheus", prometheus, targets, scrape_seconds)
        try:
            yield one
        finally:
            watching.terminate()
            watching.wait()
    finally:
        for name in [*one.children][::-1]:
            one.end(name)


def _two_free_ports() -> int:
    """Return a free port whose next port is free, too."""
    while True:
        found = sorted(free_ports(20))
        for port in found:
            if port + 1 in found:
                return port


def start_prometheus(
    place: Path,
    address: str,
    targets: Mapping[str, str],
    seconds: int,
    login: Mapping[str, str] | None = None,
) -> subprocess.Popen[bytes]:
    """Start Prometheus at an address, over the shipped rules and these servers by name.

    `login`: the user and password that it sends.
    """
    shutil.copytree(RULES, place / "alerts", dirs_exist_ok=True)
    configs = [{"targets": [at], "labels": {"server": name}} for name, at in targets.items()]
    document = {
        "global": {"scrape_interval": f"{seconds}s", "evaluation_interval": f"{seconds}s"},
        "rule_files": ["alerts/*.yml"],
        "scrape_configs": [
            {
                "job_name": "headworks",
                "static_configs": configs,
                **({"basic_auth": dict(login)} if login else {}),
            }
        ],
    }
    (place / "prometheus.yml").write_text(yaml.safe_dump(document), encoding="utf-8")
    command = ["prometheus", "--config.file=prometheus.yml", "--storage.tsdb.path=data"]
    with (place / "log").open("wb") as log:
        started = subprocess.Popen(
            [*command, f"--web.listen-address={address}"], cwd=place, stderr=log, stdout=log
        )
    until_answered(f"http://{address}/-/ready")
    return started


def ask_prometheus(address: str, expression: str) -> list[dict[str, Any]]:
    """Return the samples of a PromQL expression now."""
    asked = urllib.parse.urlencode({"query": expression})
    with urllib.request.urlopen(f"http://{address}/api/v1/query?{asked}", timeout=60) as answer:
        found: list[dict[str, Any]] = json.load(answer)["data"]["result"]
        return found


def until_answered(url: str) -> None:
    """Wait until a server answers."""
    deadline = time.monotonic() + PATIENCE
    while True:
        try:
            with urllib.request.urlopen(url, timeout=60):
                return
        except OSError:
            assert time.monotonic() < deadline, f"{url} does not answer"
            time.sleep(0.1)
