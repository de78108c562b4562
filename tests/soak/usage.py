"""The usage evidence under fire: it knows every version in use, and calls none of them unused.

Two topics with some versions each. All programs of `use.counted` count: two producers and three
groups with classes. Of `use.unknown` one group reads dicts, and one is a plain Kafka client, so
its versions must never pass. Programs are killed and started again: with the same state folder,
with another version, or with a new folder, as containers are. Broker, registry, and reconciler are
killed under them, and the broker is paused.

Between the kills, the usage is read as the gate reads it, with the reconciler at work beside it, or
as the console reads it. At each look:

- no use in a journal that is older than `KNOWN_WITHIN_MS` may be unknown, except those that were
  not reported when their program was killed with its folder, whose counter files alone had them;
- the gate's evidence may not allow the removal of a version that was known as read before, or that
  is read for longer than that. Evidence counts as if it was collected for `_OLD_DAYS`.

Rules: every choice comes from the seed. The last version of `use.counted` is never read, and must
pass at the end, because a gate that refuses everything proves nothing. It may not pass only if a
reader could not ask for the id of its schema while the registry was away.
"""

from __future__ import annotations

import json
import os
import signal
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from random import Random
from typing import Any

from headworks._audit.reconciler import Reconciler
from headworks._audit.store import AuditStore
from headworks._audit.store.evidence import read_until
from headworks._audit.usage import SubjectUsage
from headworks._audit.usage_reader import group_readers, read_usage
from headworks._audit_counting.counters import PendingIncrement, leftover_files
from headworks._audit_counting.schema_use import UNREGISTERED
from headworks._ci.governance import EvidenceRule
from headworks._ci.usage import DAY_MS, evidence_of
from headworks._cli.stack.ports import free_ports
from headworks._cli.stack.stack import register_platform_schemas
from headworks.compatibility import Finding
from headworks.errors import HeadworksError, UnreachableError
from headworks.registry_client import RegistryClient
from producer_sdk._generator import generate, write
from tests.soak.process import Broker, Child, wait_until

KNOWN_WITHIN_MS = 600_000
_OLD_DAYS = 60
_VERSIONS = 6  # of each subject
COUNTED, UNKNOWN = "use.counted", "use.unknown"
_AT = {"type": "long", "logicalType": "timestamp-millis"}


@dataclass(slots=True)
class Report:
    """The observations of a campaign; `wrong` must be empty."""

    events: Counter[str] = field(default_factory=Counter)
    looks: Counter[str] = field(default_factory=Counter)  # by their kind
    uses: int = 0  # pairs of a program and a version
    allowed: int = 0  # verdicts that a version is unused
    refused: int = 0
    longest_ms: int = 0  # that a use was not known
    lost: int = 0  # uses that went with the folder of their program, unreported
    wrong: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        told = ", ".join(f"{count} x {what}" for what, count in sorted(self.events.items()))
        kinds = ", ".join(f"{count} {kind}" for kind, count in sorted(self.looks.items()))
        return "\n".join(
            [
                told,
                f"looks: {kinds}; {self.uses} programs and versions, each known at the end",
                f"the longest that a use was not known: {self.longest_ms / 1000:.1f} s; "
                f"{self.lost} uses lost with the folder that had counted them",
                f"verdicts: {self.allowed} unused, {self.refused} in use or not known",
                *self.wrong[:20],
            ]
        )


@dataclass(slots=True)
class _Program:
    """A client with its lives: one version at a time, and a journal for each version."""

    topic: str
    role: str
    name: str
    version: int
    child: Child | None = None
    folders: int = 0  # state folders that it had

    @property
    def journal(self) -> str:
        return f"{self.name}@{self.version}"


@dataclass(slots=True)
class _Journal:
    """The uses of a version by a program, as far as they were read."""

    program: _Program
    version: int
    path: Path
    times: list[int] = field(default_factory=list)
    _offset: int = 0

    def read(self) -> None:
        if not self.path.exists():
            return
        with self.path.open("rb") as lines:
            lines.seek(self._offset)
            whole, _, _ = lines.read().rpartition(b"\n")
        if whole:
            self._offset += len(whole) + 1
            self.times += map(int, whole.split())

    def unknown_since(self, seen: int) -> int | None:
        """Return the time of the first use after `seen`, or None."""
        return next((at for at in self.times if at > seen), None)


class _Campaign:
    def __init__(self, folder: Path, seed: int) -> None:
        self.chance = Random(seed)
        self.report = Report()
        self.folder = folder
        self.store = f"sqlite:///{folder / 'audit.db'}"
        listen = f"127.0.0.1:{free_ports(1)[0]}"
        self.url = f"http://{listen}"
        start = ["headworks._cli", "registry", "start", "--listen", listen]
        start += ["--store", f"sqlite:///{folder / 'registry.db'}"]
        self.registry = Child(start, folder / "registry.log")
        self.broker = Broker(folder / "broker", "--default-partitions", "2")
        self.broker.start()
        wait_until(self._registry_answers)
        register_platform_schemas(self.url)
        self.ids = {topic: self._register(topic) for topic in (COUNTED, UNKNOWN)}
        self.journals: dict[str, _Journal] = {}
        # Versions by topic that a look has found in use by a reader.
        self.known: set[tuple[str, int]] = set()
        # Whether a reader of use.counted did not find its schema's id in a killed registry.
        self.blocked = False
        self.programs = [
            _Program(COUNTED, "write", "shop", 1),
            _Program(COUNTED, "write", "till", 2),
            _Program(COUNTED, "read", "billing", 1),
            _Program(COUNTED, "read", "fraud", 2),
            _Program(COUNTED, "read", "search", 1),
            _Program(UNKNOWN, "write", "probe", 1),
            _Program(UNKNOWN, "dicts", "export", 1),
            _Program(UNKNOWN, "plain", "legacy", 1),
        ]
        for program in self.programs:
            self._start(program)
        at = ["--bootstrap", self.broker.address, "--registry", self.url]
        reconcile = ["headworks._cli", "audit", "run", "--store", self.store, *at]
        self.reconciler = Child(reconcile, folder / "audit.log")

    def _registry_answers(self) -> bool:
        try:
            RegistryClient(self.url, attempts=1).subjects()
        except UnreachableError:
            return False
        return True

    def _register(self, topic: str) -> dict[int, int]:
        """Register the versions of a topic, generate their classes; the ids by version."""
        ids = {}
        for number in range(1, _VERSIONS + 1):
            fields: list[dict[str, Any]] = [{"name": "n", "type": "long"}]
            fields += [{"name": "at", "type": _AT}]
            fields += [{"name": f"f{i}", "type": "int", "default": 0} for i in range(1, number)]
            governed = {"topic": topic, "event_time": "at"}
            record = {"type": "record", "name": "Shot", "namespace": "use"}
            text = json.dumps({**record, "headworks": governed, "fields": fields})
            ids[number] = RegistryClient(self.url).register(f"{topic}-value", text).id
            schemas = self.folder / f"schemas-{topic}-{number}"
            schemas.mkdir()
            (schemas / "shot.avsc").write_text(text, encoding="utf-8")
            write(generate([schemas]), self.folder / _package(topic, number))
        return ids

    def _start(self, program: _Program) -> None:
        journal = self.journals.get(program.journal)
        if journal is None:
            path = self.folder / f"{program.journal}.journal"
            journal = self.journals[program.journal] = _Journal(program, program.version, path)
        state = self._state(program)
        command = ["tests.soak.usage_client", self.broker.address, self.url, program.topic]
        command += [program.role, program.name, _package(program.topic, program.version)]
        command += [str(state), str(journal.path)]
        before = _size(journal.path)
        program.child = Child(
            command, self.folder / "clients.log", ready=lambda: _size(journal.path) > before
        )

    def _wait_for(self, program: _Program) -> None:
        child = program.child
        assert child is not None
        wait_until(lambda: child.is_ready)

    def burn(self, seconds: float) -> None:
        """Kill something, and look, again and again."""
        end = time.monotonic() + seconds
        evils: list[tuple[int, str, Callable[[], object]]] = [
            (6, "program killed", self._kill),
            (3, "program moved to another version", self._move),
            (2, "program in a new folder", self._replace),
            (1, "broker killed", self._kill_broker),
            (1, "broker paused", self._pause_broker),
            (2, "reconciler killed", self._kill_reconciler),
            (1, "registry killed", self._kill_registry),
        ]
        turns = [evil for evil in evils for _ in range(evil[0])]
        while time.monotonic() < end or len(self.report.events) < len(evils):
            time.sleep(self.chance.random())
            unseen = [evil for evil in evils if evil[1] not in self.report.events]
            overdue = bool(unseen) and time.monotonic() >= end
            _, what, do = self.chance.choice(unseen if overdue else turns)
            do()
            self.report.events[what] += 1
            self.look(settled=self.chance.random() < 0.5)

    def _kill(self) -> None:
        program = self.chance.choice(self.programs)
        assert program.child is not None
        program.child.kill()
        self._start(program)

    def _move(self) -> None:
        """Deploy another version of a program, which goes on with its state folder."""
        program = self.chance.choice([one for one in self.programs if one.role != "plain"])
        assert program.child is not None
        program.child.kill()
        highest = _VERSIONS - 1 if program.role == "read" else _VERSIONS
        program.version = self.chance.randint(1, highest)
        self._start(program)

    def _replace(self) -> None:
        """Kill a program that has been at work, with its folder; start it as a container is."""
        program = self.chance.choice(self.programs)
        assert program.child is not None
        program.child.kill()
        self._forget_unreported(program)
        program.folders += 1
        self._start(program)
        self._wait_for(program)

    def _forget_unreported(self, program: _Program) -> None:
        """Remove the uses from the journals that only the counter files of the folder have."""
        counted: Counter[int] = Counter()  # by version
        for file in leftover_files(self._state(program)):
            for one in file.increments(owner_died=True):
                for version in self._versions_of(program, one):
                    counted[version] += sum(one.counts.values())
            file.close()
        for version, count in counted.items():
            journal = self.journals.get(f"{program.name}@{version}")
            if journal is not None and count:
                journal.read()
                self.report.lost += len(journal.times[-count:])
                del journal.times[-count:]

    def _versions_of(self, program: _Program, counts: PendingIncrement) -> list[int]:
        """Return the versions of a program that counts may be about; none for a reader of dicts.

        A reader that could not ask for the id of its schema counts as UNREGISTERED.
        """
        if counts.ids is None or program.role not in ("write", "read"):
            return []
        own = counts.ids.written if program.role == "write" else counts.ids.read
        ids = self.ids[program.topic]
        unregistered = program.role == "read" and own == UNREGISTERED
        return [version for version, id_ in ids.items() if id_ == own or unregistered]

    def _state(self, program: _Program) -> Path:
        return self.folder / f"state-{program.name}-{program.folders}"

    def _kill_broker(self) -> None:
        self.broker.kill()
        time.sleep(self.chance.random())
        self.broker.start()

    def _pause_broker(self) -> None:
        os.kill(self.broker.pid, signal.SIGSTOP)
        time.sleep(self.chance.random())
        os.kill(self.broker.pid, signal.SIGCONT)

    def _kill_reconciler(self) -> None:
        self.reconciler.kill()
        self.reconciler.restart()

    def _kill_registry(self) -> None:
        """While it is away, a look must fail, and say nothing about anybody."""
        self.registry.kill()
        store = AuditStore(self.store, whole_check=False)
        try:
            read_usage(store, RegistryClient(self.url, attempts=1), f"{COUNTED}-value")
            self.report.wrong.append("the usage was read without a registry")
        except UnreachableError:
            self.report.looks["without a registry"] += 1
        finally:
            store.close()
        self.registry.restart()
        wait_until(self._registry_answers)

    def look(self, *, settled: bool, last: bool = False) -> None:
        """Read the usage of both subjects, and judge it."""
        now = _now()
        for journal in self.journals.values():
            journal.read()
        try:
            store = AuditStore(self.store, whole_check=False)
        except HeadworksError as error:
            self.report.wrong.append(f"the store does not open: {error.message}")
            return
        try:
            if settled:
                with Reconciler(self.broker.address, self.url, store) as reconciler:
                    reconciler.settle()
            for topic in (COUNTED, UNKNOWN):
                usage = read_usage(
                    store,
                    RegistryClient(self.url),
                    f"{topic}-value",
                    group_readers(self.broker.address),
                    as_of=None if settled else read_until(store),
                )
                self._judge(topic, usage, now, last=last)
            self.report.looks["as the gate" if settled else "as the console"] += 1
        except UnreachableError:
            self.report.looks["of a server that was away"] += 1
        finally:
            store.close()

    def _judge(self, topic: str, usage: SubjectUsage, now: int, *, last: bool) -> None:
        in_use = {number for known, number in self.known if known == topic}
        for journal in self.journals.values():
            if journal.program.topic != topic:
                continue
            seen = _last_used(usage, journal)
            since = journal.unknown_since(seen)
            if journal.program.role == "read":
                if seen:
                    self.known.add((topic, journal.version))
                if journal.times and journal.times[0] < now - KNOWN_WITHIN_MS:
                    in_use.add(journal.version)
            if since is not None:
                self.report.longest_ms = max(self.report.longest_ms, now - since)
                if last or since < now - KNOWN_WITHIN_MS:
                    who = f"{journal.program.name} with version {journal.version} of {topic}"
                    self.report.wrong.append(f"a use by {who} is not known for {now - since} ms")
        blocked = self._is_blocked(topic, usage, now)
        if topic == COUNTED:
            self.blocked = blocked
        for number in range(1, _VERSIONS + 1):
            if not self._allows(usage, now, "HW001", number):
                self.report.refused += 1
                continue
            self.report.allowed += 1
            if number in in_use or blocked:
                who = f"version {number} of {topic}"
                self.report.wrong.append(f"{who} is in use, and called unused")
        if in_use and self._allows(usage, now, "HW302"):
            self.report.wrong.append(f"{topic} is in use, and its file may be deleted")

    def _is_blocked(self, topic: str, usage: SubjectUsage, now: int) -> bool:
        """Return whether readers that nobody can see into must refuse every removal by now."""
        others = [
            one.times[0]
            for one in self.journals.values()
            if one.program.topic == topic and one.program.role in ("dicts", "plain") and one.times
        ]
        return any(at < now - KNOWN_WITHIN_MS for at in others) or bool(
            usage.dict_readers or usage.unknown_readers or usage.unregistered_readers
        )

    def _allows(self, usage: SubjectUsage, now: int, rule: str, version: int | None = None) -> bool:
        """Return whether the gate's evidence lets a finding pass, with counts of many days."""
        prints = {one.version: one.fingerprint for one in usage.versions}
        since = None if usage.since is None else usage.since - _OLD_DAYS * DAY_MS
        finding = Finding(rule, "", "", "", "", "", "", reader_version=version)
        old = replace(usage, since=since)
        evidence = evidence_of(finding, old, prints, EvidenceRule(), now)
        assert evidence is not None
        return evidence.allows

    def settle(self) -> None:
        """Let all programs end, and look for the last time."""
        for program in self.programs:
            assert program.child is not None
            if program.child.end() != 0:
                log = program.child.log
                self.report.wrong.append(f"{program.name} did not end: {log}")
        self.look(settled=True)
        before = self.report.allowed
        self.look(settled=True, last=True)
        # Versions of use.counted that nobody read: the last one, and others by chance.
        read = {number for topic, number in self.known if topic == COUNTED}
        unused = self.report.allowed - before
        if unused != (0 if self.blocked else _VERSIONS - len(read)):
            self.report.wrong.append(f"{unused} versions are unused, and {sorted(read)} were read")
        self.report.uses = sum(bool(one.times) for one in self.journals.values())

    def put_out(self) -> None:
        """End everything."""
        clients: Sequence[Child | None] = [one.child for one in self.programs]
        for child in (*clients, self.reconciler, self.registry):
            if child is not None and child.process.poll() is None:
                child.kill()
        if self.broker.alive:
            self.broker.kill()


def campaign(folder: Path, seconds: float, seed: int) -> Report:
    """Kill for `seconds`, let the rest end, and return what was seen."""
    folder.mkdir(parents=True, exist_ok=True)
    fire = _Campaign(folder, seed)
    try:
        for program in fire.programs:
            fire._wait_for(program)
        fire.burn(seconds)
        fire.settle()
    finally:
        fire.put_out()
    return fire.report


def _last_used(usage: SubjectUsage, journal: _Journal) -> int:
    """Return until when the uses of a journal are known, in ms since 1970; 0: none is."""
    program = journal.program
    if program.role == "plain":
        return _now() if program.name in (usage.unknown_readers or ()) else 0
    if program.role == "dicts":
        users = usage.dict_readers
    else:
        version = usage.version(journal.version)
        assert version is not None
        users = version.written_by if program.role == "write" else version.read_by
        users += usage.unregistered_readers  # of a registry that did not answer: nothing passes
    name = program.name if program.role == "write" else f"{program.name}-app"
    return max((one.last_used for one in users if one.application == name), default=0)


def _package(topic: str, version: int) -> str:
    return f"{topic.replace('.', '_')}_{version}"


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


def _now() -> int:
    return time.time_ns() // 1_000_000
