"""The demo's steps, in order; each is timed, and an error names its step.

Rules: everything that was started is stopped, also on Ctrl-C. The demo uses the parts as a user
does: the gate, the generator, and the registrations run as commands.
"""

from __future__ import annotations

import importlib
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from headworks import _bundled_schemas
from headworks._audit_counting import AUDIT_TOPIC
from headworks._cli.demo.events import BUILDERS
from headworks._cli.demo.installation import (
    Installation,
    temporary_folder,
    temporary_subjects,
)
from headworks._cli.demo.interrupted_start import kill_starting_jvm, opened
from headworks._cli.demo.progress import DemoProgress
from headworks._cli.demo.queries import HiveAnswers, ask, drop_databases
from headworks._cli.demo.shared_broker import make_audit_topic, temporary_topics
from headworks._cli.demo.source import FlightData
from headworks._cli.stack.stack import (
    audit_store_url,
    register_platform_schemas,
    running_audit,
    running_console,
    running_registry,
    running_stack,
)
from headworks._server.child_process import Service
from headworks.errors import FindingsError, HeadworksError, RefusedError, UnreachableError
from headworks.registry_client import IncompatibleSchemaError, RegistryClient
from headworks.schema import subject_of

if TYPE_CHECKING:
    from hadoop_loader import WarehouseConfig

TOPICS = ("airlines", "airports", "planes", "weather", "flights")
_BLOCK_MS = 30_000
_REGISTRY_SECONDS = 30.0  # nobody waits for an answer of the demo's producer
_CHANGES = Path(__file__).parent / "changes"


@dataclass(slots=True)
class DemoOutcome:
    """The figures of a run, for the summary."""

    broker: str = ""
    sent: dict[str, int] = field(default_factory=dict)
    refused: list[dict[str, Any]] = field(default_factory=list)
    registry_status: int = 0
    loads: list[dict[str, Any]] = field(default_factory=list)
    answers: HiveAnswers | None = None
    audit: dict[str, Any] = field(default_factory=dict)
    seconds: dict[str, float] = field(default_factory=dict)


class Demo:
    """One run over the folder `home`; call `run`, and always `close`.

    With `keep`, which comes before `explore`, loads mark how far each table is complete.
    """

    def __init__(
        self,
        home: Path,
        *,
        limit: int | None,
        progress: DemoProgress,
        there: Installation | None = None,
        keep: bool = False,
    ) -> None:
        self._home = home
        self._keep = keep
        self._progress = progress
        self._source = FlightData(limit)
        self._there = there  # None: the demo starts every server
        self._as_of = datetime.now(UTC)
        self._running = ExitStack()
        self._schemas = home / "schemas"
        self._counted_before: dict[str, dict[str, int]] = {}  # by topic: the audit's earlier counts
        self._console: Service
        self._bootstrap: str
        self._registry_url: str
        self._warehouse: Future[Any]
        self.outcome = DemoOutcome()

    def run(self) -> DemoOutcome:
        """Run every step; raises the first error, prefixed with the step's name."""
        began = time.monotonic()
        with self._step("start", "start broker and registry"):
            self._start()
        with self._step("register", "check the catalog and register it"):
            self._govern()
        with self._step("produce-1", "produce January-June with version 1"):
            self._produce(1, TOPICS)
        with self._step("load-1", "load into Hive"):
            self._load()
        with self._step("refuse", "propose a breaking change"):
            self._propose_breaking_change()
        with self._step("evolve", "evolve the flights schema to version 2"):
            self._evolve()
        with self._step("produce-2", "produce July-December with version 2"):
            self._produce(2, ("weather", "flights"))
        with self._step("load-2", "load again, evolving the table"):
            self._load()
        with self._step("query", "ask Hive over HiveServer2"):
            self.outcome.answers = ask(self.hive_address, database=self._database)
        with self._step("audit", "reconcile the audit trail"):
            self._reconcile()
        self.outcome.seconds["total"] = round(time.monotonic() - began, 2)
        return self.outcome

    @property
    def registry_url(self) -> str:
        """The registry that the demo uses: the one it was pointed at, or its own."""
        return self._registry_url

    @property
    def bootstrap(self) -> str:
        """The broker that the demo uses: the one it was pointed at, or its own."""
        return self._bootstrap

    @property
    def hive_address(self) -> str:
        """Where HiveServer2 listens."""
        host, port = opened(self._warehouse).serve()
        return f"{host}:{port}"

    @property
    def _database(self) -> str:
        return "default" if self._there is None else self._there.database

    @property
    def _audit_store(self) -> str | None:
        """The URL of the demo's own audit store; an installation has one of its own."""
        if self._there is None or self._there.registry is None:
            return audit_store_url(self._home)
        return None

    @property
    def console_url(self) -> str:
        """The console, if `explore` was called."""
        return self._console.url

    def explore(self) -> None:
        """Run the console over what the run left."""
        broker, registry = self.bootstrap, self.registry_url
        console = running_console(
            self._home, broker=broker, registry=registry, schemas=self._schemas
        )
        with self._step("keep", "start the console"):
            self._console = self._running.enter_context(console)

    def close(self) -> None:
        """Stop everything that was started."""
        self._running.close()

    @contextmanager
    def _step(self, name: str, title: str) -> Iterator[None]:
        began = time.monotonic()
        try:
            with self._progress.step(title):
                yield
        except HeadworksError as error:
            error.args = (f"step {name} ({title}): {error.args[0]}",)
            error.message = error.args[0]
            raise
        self.outcome.seconds[name] = round(time.monotonic() - began, 2)

    def _start(self) -> None:
        from hadoop_loader._spark.session import check_java

        check_java()
        shutil.copytree(_bundled_schemas.folder(), self._schemas)
        if self._there is None:
            stack = self._running.enter_context(running_stack(self._home))
            self._registry_url, self._bootstrap = stack.registry.url, stack.broker.address
            self._progress.note(f"broker    {self.bootstrap}")
        else:
            self._use(self._there)
        pool = self._running.enter_context(ThreadPoolExecutor(1, "warehouse"))
        self._warehouse = pool.submit(self._open_warehouse)
        self._running.callback(self._close_warehouse)
        if self._there is None:  # it counts while the others work
            self._running.enter_context(
                running_audit(self._home, broker=self.bootstrap, registry=self.registry_url)
            )
        self.outcome.broker = self.bootstrap
        self._progress.note(f"registry  {self.registry_url}")

    def _use(self, there: Installation) -> None:
        """Make the demo's own topics and subjects in an installation that runs."""
        self._bootstrap = there.bootstrap
        self._progress.note(f"broker    {self.bootstrap}, not the demo's own")
        if there.registry is None:
            topics: tuple[str, ...] = (*TOPICS, AUDIT_TOPIC)
            self._running.enter_context(temporary_topics(there.bootstrap, topics))
            self._registry_url = self._running.enter_context(running_registry(self._home)).url
            return
        shutil.rmtree(self._schemas / "headworks")  # those of the installation stay as they are
        self._running.enter_context(temporary_topics(there.bootstrap, TOPICS))
        self._running.enter_context(temporary_folder(there))
        subjects = [subject_of(topic) for topic in TOPICS]
        self._running.enter_context(temporary_subjects(there.registry, subjects))
        self._registry_url = there.registry
        register_platform_schemas(there.registry, missing_only=True)
        make_audit_topic(there.bootstrap)
        self._counted_before = self._counts()

    def _open_warehouse(self) -> Any:
        from hadoop_loader import Warehouse

        warehouse = Warehouse.open(self._warehouse_config())
        warehouse.serve()
        return warehouse

    def _warehouse_config(self) -> WarehouseConfig:
        from hadoop_loader import Policy, WarehouseConfig

        config = WarehouseConfig(
            data_dir=self._home,
            bootstrap=self.bootstrap,
            registry=self.registry_url,
            audit_store=audit_store_url(self._home) if self._keep else None,
        )
        there = self._there
        if there is None or there.registry is None:
            return config
        return replace(
            config,
            warehouse=there.tables,
            database=there.database,
            metastore_uri=there.metastore,
            master=there.spark_master or config.master,
            policy=Policy(allow="|".join(TOPICS)),
        )

    def _close_warehouse(self) -> None:
        if self._database == "default":  # else it may have made databases that must be dropped
            kill_starting_jvm(self._warehouse)
        if self._warehouse.exception() is None:
            if self._database != "default":
                for name in drop_databases(self.hive_address, self._database):
                    self._progress.note(f"the database {name} could not be dropped")
            self._warehouse.result().close()

    def _govern(self) -> None:
        self._command("schema", "check", str(self._schemas), "--against", self._registry_base)
        self._command("schema", "register", "--all", str(self._schemas))
        self._command("gen", str(self._schemas), "--out", str(self._home / "events_v1"))

    @property
    def _registry_base(self) -> str:
        return f"registry:{self.registry_url}"

    def _produce(self, half: int, topics: tuple[str, ...]) -> None:
        from producer_sdk import Producer, WhenFull

        module = self._generated(f"events_v{half}")
        with Producer(
            self.bootstrap,
            self.registry_url,
            application="headworks-demo",
            state_dir=self._home / "producer",
            when_full=WhenFull.BLOCK,
            block_ms=_BLOCK_MS,
            registry_timeout=_REGISTRY_SECONDS,
        ) as producer:
            for topic in topics:
                rows = self._rows(topic, half)
                with self._progress.bar(topic, len(rows)) as advance:
                    for event in BUILDERS[topic](module, rows, self._as_of):
                        if not producer.send(event):
                            raise UnreachableError(f"the broker took no event for {_BLOCK_MS} ms")
                        advance()
                self.outcome.sent[topic] = self.outcome.sent.get(topic, 0) + len(rows)

    def _rows(self, topic: str, half: int) -> list[Any]:
        if topic in ("flights", "weather"):
            return self._source.half_year(topic, half)
        return self._source.reference(topic)

    def _generated(self, package: str) -> ModuleType:
        sys.path.insert(0, str(self._home))
        try:
            return importlib.import_module(f"{package}.nyc")
        finally:
            sys.path.remove(str(self._home))

    def _load(self) -> None:
        report = opened(self._warehouse).load()
        for refusal in report.refused:
            raise RefusedError(f"the loader refused topic {refusal.topic}: {refusal.reason}")
        for one in report.leaderless:
            raise UnreachableError(f"topic {one.topic} is loaded in part: {one.reason}")
        self.outcome.loads.append(
            {"load": report.number, "rows": {t.topic: t.rows for t in report.topics}}
        )

    def _propose_breaking_change(self) -> None:
        change = self._home / "proposed"
        (change / "nyc").mkdir(parents=True)
        shutil.copy(self._schemas / "governance.toml", change)
        shutil.copy(_CHANGES / "flights-breaking.avsc", change / "nyc" / "flights.avsc")
        against = ("--against", self._registry_base)
        verdict = self._command("schema", "check", str(change), *against, expect=(1,))
        self.outcome.refused = verdict["findings"]
        text = (change / "nyc" / "flights.avsc").read_text(encoding="utf-8")
        try:
            RegistryClient(self.registry_url).register(subject_of("flights"), text)
        except IncompatibleSchemaError:
            self.outcome.registry_status = 409
        else:
            raise FindingsError("the registry took the breaking change that the gate refused")

    def _evolve(self) -> None:
        shutil.copy(_CHANGES / "flights-v2.avsc", self._schemas / "nyc" / "flights.avsc")
        self._command("schema", "check", str(self._schemas), "--against", self._registry_base)
        self._command("schema", "register", "--all", str(self._schemas))
        self._command("gen", str(self._schemas), "--out", str(self._home / "events_v2"))

    def _reconcile(self) -> None:
        rows = self._counts()
        whole = {
            name: sum(row[name] for row in rows.values())
            - sum(row[name] for row in self._counted_before.values())
            for name in ("attempted", "loaded", "surplus", "duplicated")
        }
        self.outcome.audit = {
            "sent": whole["attempted"],
            "loaded": whole["loaded"],
            "lost": whole["attempted"] - whole["loaded"],  # a demo loses and quarantines nothing
            "duplicated": whole["surplus"] + whole["duplicated"],
            "topics": [*rows.values()],
        }

    def _counts(self) -> dict[str, dict[str, Any]]:
        """Return what the audit has counted of the demo's topics, also in an earlier demo."""
        # The other topics of an installation may have findings of their own: exit 1.
        expect = (0,) if self._there is None else (0, 1)
        store = [] if self._audit_store is None else ["--store", self._audit_store]
        rows = self._command("audit", "status", *store, expect=expect)["rows"]
        return {row["topic"]: row for row in rows if row["topic"] in TOPICS}

    def _command(self, *arguments: str, expect: tuple[int, ...] = (0,)) -> Any:
        """Run `headworks ARGUMENTS --format json` and return its answer."""
        self._progress.note("$ headworks " + " ".join(arguments))
        done = subprocess.run(
            [sys.executable, "-P", "-m", "headworks._cli", *arguments, "--format", "json"],
            capture_output=True,
            text=True,
            stdin=subprocess.DEVNULL,
            env={
                **os.environ,
                "HEADWORKS_BOOTSTRAP": self.bootstrap,
                "HEADWORKS_REGISTRY": self.registry_url,
            },
            check=False,
        )
        if done.returncode not in expect:
            raise RefusedError(
                f"`headworks {' '.join(arguments)}` ended with {done.returncode}:\n"
                f"{done.stderr.strip() or done.stdout.strip()}"
            )
        return json.loads(done.stdout) if done.stdout.strip() else {}
