"""Troubles that are caused on running servers, and the alert rules that must notice each.

Broker, registry, and reconciler run as processes, and the loader runs here, without Spark. For each
trouble: the expressions of its rules are silent, the trouble is caused, and each expression must
find it in the metrics that Prometheus scraped.

Rules:

- An expression is that of the shipped rule, with its times shortened, so that hours are seconds.
- The rule's `for` is left out: the made series of tests/deploy hold it.
"""

from __future__ import annotations

import re
import signal
import socket
import sqlite3
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import confluent_kafka
import yaml
from confluent_kafka.admin import AdminClient

from hadoop_loader._operations.load import Load
from hadoop_loader._operations.metrics import LoaderMetrics
from headworks._audit.increments import Increment
from headworks._audit_counting import AUDIT_TOPIC, window_of
from headworks._cli.stack.ports import free_ports
from headworks._server.metrics_page import MetricsEndpoint
from headworks.errors import HeadworksError
from headworks.registry_client import RegistryClient
from producer_sdk import Producer
from producer_sdk._untyped import event_class
from tests.audit.topic import encoded
from tests.interop.in_place import log_folder
from tests.soak.fire_loader import loader_context
from tests.soak.live import RULES, ask_prometheus, start_prometheus, until_answered
from tests.soak.live_traffic import SCHEMAS, TOPICS
from tests.soak.process import PATIENCE, Child

ORDERS, PAGEVIEWS, READINGS = "shop.orders", "web.pageviews", "iot.readings"
_SHORTER = {
    "[5m]": "[20s]",
    "[15m]": "[20s]",
    "[30m]": "[15s]",
    "[1h]": "[60s]",
    "[2h]": "[15s]",
    "offset 1h": "offset 30s",
    "offset 2h": "offset 15s",
    "> 3600": "> 30",
}
_SILENT_SECONDS = 75  # heartbeats come every minute
_MAX_CONNECTIONS = 60
_PATIENCE_SECONDS = 120.0
_REST: dict[str, dict[str, Any]] = {ORDERS: {"customer": "ada"}, READINGS: {"celsius": 21.5}}


@dataclass
class Report:
    """The rules that fired by caused trouble, with the seconds that it took; `wrong` is empty."""

    fired: dict[str, float] = field(default_factory=dict)
    wrong: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        names = ", ".join(f"{name} {seconds:.0f} s" for name, seconds in self.fired.items())
        return "\n".join([f"{len(self.fired)} rules fired: {names}", *self.wrong])


def shortened(expression: str) -> str:
    """Return a rule's expression with shorter times."""
    for long, short in _SHORTER.items():
        expression = expression.replace(long, short)
    return expression


def expressions() -> dict[str, str]:
    """Return the shortened expressions of the shipped rules, by the name of the alert."""
    found: dict[str, str] = {}
    for path in RULES.glob("*.yml"):
        for group in yaml.safe_load(path.read_text(encoding="utf-8"))["groups"]:
            found |= {rule["alert"]: shortened(rule["expr"]) for rule in group["rules"]}
    return found


class Stand:
    """The servers of one campaign, and how each is hurt."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        names = ("broker", "registry", "broker metrics", "audit", "load", "prometheus")
        self.at = {n: f"127.0.0.1:{p}" for n, p in zip(names, free_ports(6), strict=True)}
        self.registry_url = f"http://{self.at['registry']}"
        store = f"sqlite:///{folder / 'registry.db'}"
        listen = ("--listen", self.at["registry"], "--store", store)
        self.registry = self._child("registry", "cli", "registry", "start", *listen)
        self.broker = self._start_broker()
        until_answered(f"{self.registry_url}/metrics")
        until_answered(f"http://{self.at['broker metrics']}/metrics")
        client = RegistryClient(self.registry_url)
        audit = Path(__file__).parent.parent.parent / "schemas" / "headworks" / "audit.avsc"
        client.register(f"{AUDIT_TOPIC}-value", audit.read_text(encoding="utf-8"))
        self.ids = {subject: client.register(subject, text).id for subject, text in SCHEMAS.items()}
        self.audit = self._start_audit()
        self.warehouse = folder / "warehouse"
        self.warehouse.mkdir(exist_ok=True)
        self.loader_metrics = LoaderMetrics(self.warehouse)
        self.loader_metrics.serve(MetricsEndpoint.parse(self.at["load"]))

    def _child(self, name: str, *command: str) -> Child:
        return Child([*command], self.folder / f"{name}.log")

    def _start_broker(self) -> Child:
        where = ["--listen", self.at["broker"], "--data-dir", str(self.folder / "broker")]
        where += ["--metrics", self.at["broker metrics"], "--default-partitions", "1"]
        where += ["--max-connections", str(_MAX_CONNECTIONS)]
        module = ("tests.soak.faults", str(self.folder), "broker", "start")
        return self._child("broker", *module, *where)

    def _start_audit(self) -> Child:
        where = ["--bootstrap", self.at["broker"], "--registry", self.registry_url]
        where += ["--store", f"sqlite:///{self.folder / 'audit.db'}", "--metrics", self.at["audit"]]
        limits = ["--complete-within", "5s", "--silent-after", f"{_SILENT_SECONDS}s"]
        return self._child("audit", "cli", "audit", "run", *where, *limits, "--look-every", "1s")

    def send(self, topic: str, number: int, *, state: str = "sdk", **options: Any) -> None:
        """Send events of 20 minutes ago by a producer that counts."""
        event = event_class(topic, TOPICS[topic])
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
                at = datetime.now(UTC) - timedelta(minutes=20)
                producer.send(event({"at": at, "number": n, **_REST[topic]}))

    def write(self, topic: str, *values: bytes) -> None:
        """Write values of 20 minutes ago by a plain client."""
        producer = confluent_kafka.Producer({"bootstrap.servers": self.at["broker"]})
        for value in values:
            producer.produce(topic, value, timestamp=int((time.time() - 1200) * 1000))
        assert producer.flush(PATIENCE) == 0

    def load(self) -> None:
        """Load, and count the run as the loader does."""
        try:
            context = loader_context(self.at["broker"], self.registry_url, self.warehouse)
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
        for child in (self.audit, self.broker, self.registry):
            with suppress(ProcessLookupError):
                child.signal(signal.SIGCONT)
                child.kill()


def quarantine(stand: Stand) -> None:
    stand.write(ORDERS, b"\0poison")
    stand.load()


def load_what_nobody_counts(stand: Stand) -> None:
    stand.write(PAGEVIEWS, *[_pageview(stand, n) for n in range(9)])
    stand.load()


def _pageview(stand: Stand, number: int) -> bytes:
    frame = b"\0" + stand.ids[f"{PAGEVIEWS}-value"].to_bytes(4, "big")
    return frame + bytes([0, 2 * number, 2]) + b"/"  # at, number, and path as Avro


def spoil_the_audit(stand: Stand) -> None:
    stand.write(AUDIT_TOPIC, b"no increment")


def remove_before_the_load(stand: Stand) -> None:
    stand.send(ORDERS, 60)
    client = confluent_kafka.Consumer({"bootstrap.servers": stand.at["broker"], "group.id": "x"})
    place = confluent_kafka.TopicPartition(ORDERS, 0)
    _, end = client.get_watermark_offsets(place, timeout=PATIENCE)
    client.close()
    admin = AdminClient({"bootstrap.servers": stand.at["broker"]})
    found = admin.delete_records([confluent_kafka.TopicPartition(ORDERS, 0, end)])
    for one in found.values():
        one.result(PATIENCE)
    stand.load()


def drop(stand: Stand) -> None:
    event = event_class(ORDERS, TOPICS[ORDERS])
    producer = Producer(
        *(stand.at["broker"], stand.registry_url),
        application="dropping",
        state_dir=stand.folder / "dropping",
        audit_every=0.5,
        queue_messages=5,
        close_timeout=PATIENCE,
    )
    at = datetime.now(UTC) - timedelta(minutes=20)
    producer.send_and_wait(event({"at": at, "number": 0, **_REST[ORDERS]}), PATIENCE)
    stand.broker.signal(signal.SIGSTOP)
    for n in range(300):
        producer.send(event({"at": at, "number": n, **_REST[ORDERS]}))
    stand.broker.signal(signal.SIGCONT)
    producer.close()


def refuse_connections(stand: Stand) -> None:
    host, port = stand.at["broker"].split(":")
    for _ in range(3):
        some = []
        for _ in range(2 * _MAX_CONNECTIONS):
            with suppress(OSError):
                some.append(socket.create_connection((host, int(port)), timeout=5))
        time.sleep(2)
        for one in some:
            one.close()


def fill_the_disk(stand: Stand) -> None:
    producer = confluent_kafka.Producer(
        {"bootstrap.servers": stand.at["broker"], "message.timeout.ms": 8_000}
    )
    for _ in range(20):
        producer.produce(READINGS, b"for a full disk")
    producer.flush(PATIENCE)


def flush_slowly(stand: Stand) -> None:
    for _ in range(4):
        stand.write(READINGS, b"slowly")


def fall_behind(stand: Stand) -> None:
    stand.write(READINGS, b"read")  # the topic exists from now on
    place = confluent_kafka.TopicPartition(READINGS, 0, 0)
    client = confluent_kafka.Consumer({"bootstrap.servers": stand.at["broker"], "group.id": "slow"})
    client.commit(offsets=[place], asynchronous=False)
    client.close()
    stand.write(READINGS, *[b"unread"] * 1_500)
    for _ in range(20):
        time.sleep(1)
        stand.write(READINGS, *[b"unread"] * 50)


def report_from_a_wrong_clock(stand: Stand) -> None:
    found = RegistryClient(stand.registry_url).latest(f"{AUDIT_TOPIC}-value")
    assert found is not None
    now = int(time.time() * 1000)
    who = (ORDERS, "producer", window_of(now), {"attempted": 1}, 0, "fast", "fast-clock")
    for _ in range(3):
        one = Increment(str(uuid.uuid4()), *who, sent_at=now + 600_000)
        stand.write(AUDIT_TOPIC, encoded(one, found.id))
        time.sleep(1)


def lock_the_registrys_store(stand: Stand) -> None:
    file = stand.folder / "registry.db"
    client = RegistryClient(stand.registry_url, timeout=PATIENCE, attempts=1)
    with closing(sqlite3.connect(file, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        for number in range(2):
            with suppress(HeadworksError):
                client.register(f"locked-{number}-value", TOPICS[READINGS])


def load_and_be_scraped(stand: Stand) -> None:
    stand.load()
    time.sleep(3)


def kill_the_registry(stand: Stand) -> None:
    stand.registry.kill()
    for _ in range(5):
        stand.load()
        time.sleep(2)


def tear_the_log(stand: Stand) -> None:
    if stand.broker.process.poll() is None:
        stand.broker.kill()
    folder = log_folder(stand.folder / "broker", READINGS)
    newest = max(folder.glob("*.log"))
    with newest.open("ab") as log:
        log.write(bytes(100))
    stand.broker = stand._start_broker()


@dataclass(frozen=True, slots=True)
class Trouble:
    """A deed, the rules that must notice it, and the fault that lasts meanwhile."""

    cause: Callable[[Stand], None]
    alerts: tuple[str, ...]
    fault: str | None = None


QUICK = (
    Trouble(quarantine, ("QuarantineGrows",)),
    Trouble(remove_before_the_load, ("RemovedBeforeLoad", "MessagesLost", "LossAboveSla")),
    Trouble(drop, ("MessagesDropped",)),
    Trouble(spoil_the_audit, ("AuditHoles",)),
    Trouble(lambda stand: stand.audit.kill(), ("AuditAway",)),
    Trouble(lambda stand: stand.broker.kill(), ("BrokerDown",)),
)
"""Troubles that are noticed within seconds."""

TROUBLES = (
    Trouble(quarantine, ("QuarantineGrows",)),
    Trouble(load_what_nobody_counts, ("TopicNotCounted",)),
    Trouble(remove_before_the_load, ("RemovedBeforeLoad", "MessagesLost", "LossAboveSla")),
    Trouble(drop, ("MessagesDropped",)),
    Trouble(report_from_a_wrong_clock, ("ClockSkew",)),
    Trouble(lock_the_registrys_store, ("RegistryStoreFails", "RegistryErrors")),
    Trouble(refuse_connections, ("ConnectionsRefused",)),
    Trouble(fall_behind, ("GroupFallingBehind",)),
    Trouble(lambda _: None, ("GroupStuck",)),
    Trouble(flush_slowly, ("SlowFlushes",), "slow"),
    Trouble(fill_the_disk, ("PartitionNotWritable", "BrokerErrors"), "full"),
    Trouble(spoil_the_audit, ("AuditHoles",)),
    Trouble(load_and_be_scraped, ()),  # so that the next load is not overdue yet
    Trouble(kill_the_registry, ("RegistryDown", "LoadsFail", "LoadOverdue")),
    Trouble(lambda stand: stand.audit.kill(), ("AuditAway",)),
    Trouble(lambda stand: stand.broker.kill(), ("BrokerDown",)),
    Trouble(tear_the_log, ("TornTailCut",)),
)


def campaign(folder: Path, troubles: tuple[Trouble, ...] = TROUBLES) -> Report:
    """Cause every trouble, one after the other."""
    report, rules, stand = Report(), expressions(), Stand(folder)
    targets = {"broker": stand.at["broker metrics"], "registry": stand.at["registry"]}
    targets |= {"audit": stand.at["audit"], "load": stand.at["load"]}
    watching = start_prometheus(folder / "prometheus", stand.at["prometheus"], targets, 1)
    try:
        stand.send(ORDERS, 500)
        stand.load()
        _wait(lambda: bool(_asked(stand, "headworks_audit_messages > 0")))
        # A rule compares with a scrape of before the trouble.
        _wait(lambda: bool(_asked(stand, "headworks_loader_topic_quarantined")))
        for trouble in troubles:
            _judge(stand, trouble, rules, report)
    finally:
        watching.terminate()
        watching.wait()
        stand.end()
    return report


def _judge(stand: Stand, trouble: Trouble, rules: dict[str, str], report: Report) -> None:
    names = [f"Headworks{name}" for name in trouble.alerts]
    before = [name for name in names if _asked(stand, rules[name])]
    report.wrong += [f"{name} fires without its trouble" for name in before]
    began = time.monotonic()
    if trouble.fault:
        with stand.fault(trouble.fault):
            trouble.cause(stand)
            _await_alerts(stand, names, rules, report, began)
    else:
        trouble.cause(stand)
        _await_alerts(stand, names, rules, report, began)


def _await_alerts(
    stand: Stand, names: list[str], rules: dict[str, str], report: Report, began: float
) -> None:
    waiting = [*names]
    with suppress(TimeoutError):
        while waiting:
            for name in [one for one in waiting if _asked(stand, rules[one])]:
                report.fired[name] = time.monotonic() - began
                waiting.remove(name)
            if time.monotonic() - began > _PATIENCE_SECONDS:
                raise TimeoutError
            time.sleep(0.5)
    report.wrong += [f"{name} did not notice its trouble" for name in waiting]


def _asked(stand: Stand, expression: str) -> list[dict[str, Any]]:
    return ask_prometheus(stand.at["prometheus"], re.sub(r"\s+", " ", expression))


def _wait(true: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not true():
        assert time.monotonic() < deadline, "what was waited for has not come"
        time.sleep(0.5)
