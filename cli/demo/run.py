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
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from types import ModuleType
from typing import Any

from headworks import _bundled_schemas
from headworks._audit_counting import AUDIT_TOPIC
from headworks._cli.demo.events import BUILDERS
from headworks._cli.demo.interrupted_start import kill_starting_jvm
from headworks._cli.demo.progress import DemoProgress
from headworks._cli.demo.queries import HiveAnswers, ask
from headworks._cli.demo.shared_broker import temporary_topics
from headworks._cli.demo.source import FlightData
from headworks._cli.stack.stack import (
    running_audit,
    running_console,
    running_registry,
    running_stack,
)
from headworks._server.child_process import Service
from headworks.errors import FindingsError, HeadworksError, RefusedError, UnreachableError
from headworks.registry_client import IncompatibleSchemaError, RegistryClient
from headworks.schema import subject_of

TOPICS = ("airlines", "airports", "planes", "weather", "flights")
_BLOCK_MS = 30_000
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
    """One run over the folder `home`; call `run`, and always `close`."""

    def __init__(
        self, home: Path, *, limit: int | None, progress: DemoProgress, bootstrap: str | None = None
    ) -> None:
        self._home = home
        self._progress = progress
        self._source = FlightData(limit)
        self._bootstrap = bootstrap
        self._as_of = datetime.now(UTC)
        self._running = ExitStack()
        self._schemas = home / "schemas"
        self._registry: Service
        self._console: Service
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
            self.outcome.answers = ask(self.hive_address)
        with self._step("audit", "reconcile the audit trail"):
            self._reconcile()
        self.outcome.seconds["total"] = round(time.monotonic() - began, 2)
        return self.outcome

    @property
    def registry_url(self) -> str:
        """The registry, always the demo's own."""
        return self._registry.url

    @property
    def bootstrap(self) -> str:
        """The broker that the demo uses: the one it was pointed at, or its own."""
        assert self._bootstrap is not None
        return self._bootstrap

    @property
    def hive_address(self) -> str:
        """Where HiveServer2 listens."""
        host, port = self._warehouse.result().serve()
        return f"{host}:{port}"

    @property
    def console_url(self) -> str:
        """The console, if `explore` was called."""
        return self._console.url

    def explore(self) -> None:
        """Run the other servers of `headworks up` over what the run left: console and audit."""
        broker, registry = self.bootstrap, self.registry_url
        console = running_console(
            self._home, broker=broker, registry=registry, schemas=self._schemas
        )
        with self._step("keep", "start console and audit"):
            self._running.enter_context(running_audit(self._home, broker=broker, registry=registry))
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
        if self._bootstrap is None:
            stack = self._running.enter_context(running_stack(self._home))
            self._registry, self._bootstrap = stack.registry, stack.broker.address
            self._progress.note(f"broker    {self.bootstrap}")
        else:
            self._progress.note(f"broker    {self.bootstrap}, not the demo's own")
            self._running.enter_context(temporary_topics(self._bootstrap, (*TOPICS, AUDIT_TOPIC)))
            self._registry = self._running.enter_context(running_registry(self._home))
        pool = self._running.enter_context(ThreadPoolExecutor(1, "warehouse"))
        self._warehouse = pool.submit(self._open_warehouse)
        self._running.callback(self._close_warehouse)
        self.outcome.broker = self.bootstrap
        self._progress.note(f"registry  {self.registry_url}")

    def _open_warehouse(self) -> Any:
        from hadoop_loader import Warehouse, WarehouseConfig

        config = WarehouseConfig(
            data_dir=self._home, bootstrap=self.bootstrap, registry=self.registry_url
        )
        warehouse = Warehouse.open(config)
        warehouse.serve()
        return warehouse

    def _close_warehouse(self) -> None:
        kill_starting_jvm(self._warehouse)
        if self._warehouse.exception() is None:
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
        report = self._warehouse.result().load()
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
        verdict = self._command("schema", "check", str(change), *against, expect=1)
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
        verdict = self._command("audit", "status")
        whole = verdict["total"]
        self.outcome.audit = {
            "sent": whole["attempted"],
            "loaded": whole["loaded"],
            "lost": whole["attempted"] - whole["loaded"],  # a demo loses and quarantines nothing
            "duplicated": whole["surplus"] + whole["duplicated"],
            "topics": verdict["rows"],
        }

    def _command(self, *arguments: str, expect: int = 0) -> Any:
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
        if done.returncode != expect:
            raise RefusedError(
                f"`headworks {' '.join(arguments)}` ended with {done.returncode}, not {expect}:\n"
                f"{done.stderr.strip() or done.stdout.strip()}"
            )
        return json.loads(done.stdout) if done.stdout.strip() else {}
