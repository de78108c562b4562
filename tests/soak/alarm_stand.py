"""The servers that `alarms` hurts: broker, registry, and reconciler as processes, the loader here.

The whole campaign has more: a guarded broker and a guarded registry, and a mirror with its target.

Rule: `end` ends every process.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import confluent_kafka

from hadoop_loader._operations.load import Load
from hadoop_loader._operations.metrics import LoaderMetrics
from headworks._audit_counting import AUDIT_TOPIC
from headworks._cli.stack.ports import free_ports
from headworks._server.metrics_page import MetricsEndpoint
from headworks._server.security.users import new_secret, write_users
from headworks.errors import HeadworksError
from headworks.registry_client import RegistryClient
from producer_sdk import Producer
from producer_sdk._untyped import event_class
from tests.audit.topic import encoded as encoded_increment
from tests.relay import Relay
from tests.soak.fire_loader import loader_context
from tests.soak.live import ask_prometheus, until_answered
from tests.soak.live_traffic import SCHEMAS, TOPICS, topic_schema
from tests.soak.process import PATIENCE, Child

ORDERS, PAGEVIEWS, READINGS = "shop.orders", "web.pageviews", "iot.readings"
MINUTES_AGO = 20.0
SILENT_SECONDS = 75  # heartbeats come every minute
MAX_CONNECTIONS = 60
TARGET_MAX_BYTES = 100_000  # of a message
LOGIN = {"username": "ada", "password": "right"}  # of the guarded servers
GOVERNED = "copied.governed"  # the mirror's target wants a schema for it
_REST: dict[str, dict[str, Any]] = {
    ORDERS: {"customer": "ada"},
    PAGEVIEWS: {"path": "/"},
    READINGS: {"celsius": 21.5},
}
_PORTS = (
    *("broker", "registry", "broker metrics", "audit", "load", "prometheus", "mirror", "target"),
    *("guarded broker", "guarded metrics", "guarded registry"),
)


def other_schema(topic: str) -> str:
    """Return the schema of a topic that has none in `live_traffic`."""
    return topic_schema(topic, "Other", number="long")


def other_class(topic: str) -> Any:
    """Return the class of the events of such a topic."""
    return event_class(topic, other_schema(topic))


class Stand:
    """The servers of one campaign; `whole`: with guarded ones and a mirror."""

    def __init__(self, folder: Path, *, whole: bool) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        ports = free_ports(len(_PORTS))
        self.at = {name: f"127.0.0.1:{port}" for name, port in zip(_PORTS, ports, strict=True)}
        self.registry_url = f"http://{self.at['registry']}"
        store = f"sqlite:///{folder / 'registry.db'}"
        self.children: list[Child] = []
        listen = ("--listen", self.at["registry"], "--store", store)
        self.registry = self.child("registry", "cli", "registry", "start", *listen)
        self.broker = self.start_broker()
        until_answered(f"{self.registry_url}/metrics")
        until_answered(f"http://{self.at['broker metrics']}/metrics")
        self.registry_client = RegistryClient(self.registry_url)
        audit = Path(__file__).parent.parent.parent / "schemas" / "headworks" / "audit.avsc"
        subjects = {**SCHEMAS, f"{AUDIT_TOPIC}-value": audit.read_text(encoding="utf-8")}
        self.ids = {s: self.registry_client.register(s, t).id for s, t in subjects.items()}
        self.audit_store = folder / "audit.db"
        self.audit = self.start_audit()
        self.warehouse = folder / "warehouse"
        self.warehouse.mkdir(exist_ok=True)
        self.loader_metrics = LoaderMetrics(self.warehouse)
        self.loader_metrics.serve(MetricsEndpoint.parse(self.at["load"]))
        self.loader_cable = Relay(self.at["load"])
        self.targets = {"broker": self.at["broker metrics"], "registry": self.at["registry"]}
        self.targets |= {"audit": self.at["audit"], "load": self.loader_cable.address}
        if whole:
            self._start_guarded()
            self.target = self._start_target()
            self.mirror = self._start_mirror()

    def child(self, name: str, *command: str) -> Child:
        """Start a process; its words are in NAME.log."""
        started = Child([*command], self.folder / f"{name}.log")
        self.children.append(started)
        return started

    def start_broker(self) -> Child:
        """Start the broker, on a disk that fails on demand."""
        where = ["--listen", self.at["broker"], "--data-dir", str(self.folder / "broker")]
        where += ["--metrics", self.at["broker metrics"], "--default-partitions", "1"]
        where += ["--max-connections", str(MAX_CONNECTIONS), "--compaction-seconds", "1"]
        module = ("tests.soak.faults", str(self.folder), "broker", "start")
        return self.child("broker", *module, *where)

    def start_audit(self) -> Child:
        """Start the reconciler on `audit_store`."""
        where = ["--bootstrap", self.at["broker"], "--registry", self.registry_url]
        where += ["--store", f"sqlite:///{self.audit_store}", "--metrics", self.at["audit"]]
        limits = ["--complete-within", "5s", "--silent-after", f"{SILENT_SECONDS}s"]
        return self.child("audit", "cli", "audit", "run", *where, *limits, "--look-every", "1s")

    def _start_guarded(self) -> None:
        users = self.folder / "users"
        write_users(users, {LOGIN["username"]: new_secret(LOGIN["password"])})
        access = self.folder / "access.toml"
        access.write_text('[[grants]]\nto = ["ada"]\nroles = ["admin"]\n', encoding="utf-8")
        asked, place = ("--users", str(users), "--access", str(access)), self.folder / "guarded"
        metrics = self.at["guarded metrics"]
        where = ("--listen", self.at["guarded broker"], "--data-dir", str(place))
        options = ("--metrics", metrics, "--max-connections", "40")
        self.child("guarded", "cli", "broker", "start", *where, *options, *asked)
        place.mkdir(exist_ok=True)
        store = ("--store", f"sqlite:///{place / 'registry.db'}")
        listen = ("--listen", self.at["guarded registry"])
        self.child("guarded-registry", "cli", "registry", "start", *listen, *store, *asked)
        until_answered(f"http://{self.at['guarded registry']}/health")
        self.targets |= {"guarded": metrics, "guarded registry": listen[1]}

    def _start_target(self) -> Child:
        where = ("--listen", self.at["target"], "--data-dir", str(self.folder / "target"))
        limits = ("--max-message-bytes", str(TARGET_MAX_BYTES), "--registry", self.registry_url)
        governed = ("--require-subject", GOVERNED.replace(".", r"\."), "--default-partitions", "1")
        return self.child("target", "cli", "broker", "start", *where, *limits, *governed)

    def _start_mirror(self) -> Child:
        self.write("copied.small", b"first")  # a mirror wants a topic
        between = ("--from", self.at["broker"], "--to", self.at["target"], "--topics", "copied.*")
        often = ("--commit-every", "1", "--refresh-every", "1", "--skip-too-large", "--no-audit")
        metrics = ("--metrics", self.at["mirror"], "--data-dir", str(self.folder / "mirror"))
        started = self.child("mirror", "cli", "mirror", *between, *often, *metrics)
        until_answered(f"http://{self.at['mirror']}/metrics")
        self.targets["mirror"] = self.at["mirror"]
        return started

    def ask(self, expression: str) -> list[dict[str, Any]]:
        """Return what Prometheus answers now."""
        return ask_prometheus(self.at["prometheus"], " ".join(expression.split()))

    def wait_for(self, expression: str) -> None:
        """Wait until Prometheus finds something."""
        deadline = time.monotonic() + PATIENCE
        while not self.ask(expression):
            assert time.monotonic() < deadline, f"not found: {expression}"
            time.sleep(0.5)

    def send(
        self,
        topic: str,
        number: int,
        *,
        state: str = "sdk",
        minutes_ago: float = MINUTES_AGO,
        apart: float = 0.0,
        **options: Any,
    ) -> None:
        """Send events by a producer that counts; each is `apart` minutes older than the next."""
        schema = TOPICS.get(topic) or other_schema(topic)
        self.register(topic, schema)
        event = event_class(topic, schema)
        place = (self.at["broker"], self.registry_url)
        with Producer(
            *place,
            application=state,
            state_dir=self.folder / state,
            audit_every=0.5,
            close_timeout=PATIENCE,
            **options,
        ) as producer:
            for n in range(number):
                at = datetime.now(UTC) - timedelta(minutes=minutes_ago + apart * (number - n))
                producer.send(event({"at": at, "number": n, **_REST.get(topic, {})}))

    def register(self, topic: str, schema: str) -> int:
        """Register a topic's schema; its id."""
        subject = f"{topic}-value"
        if subject not in self.ids:
            self.ids[subject] = self.registry_client.register(subject, schema).id
        return self.ids[subject]

    def write(self, topic: str, *values: bytes, key: bytes | None = None) -> None:
        """Write values of 20 minutes ago by a plain client."""
        producer = confluent_kafka.Producer({"bootstrap.servers": self.at["broker"]})
        for value in values:
            at = int((time.time() - 60 * MINUTES_AGO) * 1000)
            producer.produce(topic, value, key, timestamp=at)
        assert producer.flush(PATIENCE) == 0

    def report(self, *increments: Any) -> None:
        """Write increments to the audit topic, as tiers do."""
        self.write(
            AUDIT_TOPIC,
            *(encoded_increment(one, self.ids[f"{AUDIT_TOPIC}-value"]) for one in increments),
        )

    def load(self, *, warehouse: Path | None = None, skip_damaged: bool = False) -> None:
        """Load, and count the run as the loader does."""
        try:
            root = warehouse or self.warehouse
            root.mkdir(exist_ok=True)
            context = loader_context(self.at["broker"], self.registry_url, root)
            context = replace(context, policy=replace(context.policy, skip_damaged=skip_damaged))
            self.loader_metrics.loaded(Load(context).run())
        except HeadworksError:
            self.loader_metrics.failed()

    @contextmanager
    def fault(self, name: str) -> Iterator[None]:
        """Let the broker's disk fail in this way (see `faults`)."""
        (self.folder / name).touch()
        try:
            yield
        finally:
            (self.folder / name).unlink()

    def end(self) -> None:
        """End every server."""
        self.loader_cable.close()
        for child in self.children[::-1]:
            with suppress(ProcessLookupError):
                child.signal(signal.SIGCONT)
                child.kill()
