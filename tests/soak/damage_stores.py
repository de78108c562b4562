"""The SQLite stores, damaged: registry, audit, coordination, and the broker's cache of schemas.

The ledger of a store is its rows. A row counts as whole if every byte of its page is as it was. In
the end it is there, and no row is there that never was.

A site damages the file, its log (`-wal`), its counter (`-commits`), or its seal (`-checked`).
"""

from __future__ import annotations

import asyncio
import json
import logging
import re
import shlex
import shutil
import sqlite3
from collections import defaultdict
from collections.abc import Callable, Collection
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any
from uuid import UUID

from typer.testing import CliRunner

from headworks._audit.increments import Increment
from headworks._audit.store import AuditStore
from headworks._audit.store.apply import IncrementBatch, apply, positions
from headworks._broker.coordination import CommittedOffset, LocalCoordination, Topic
from headworks._broker.topics.known_schemas import KnownSchemas
from headworks._cli.main import command_line
from headworks._registry.model.definition import Definition, SchemaReference
from headworks._registry.store import RegistryStore, schema_writes, schemas, settings
from headworks._registry.store.schemas import StoredSchema
from headworks._server.checked_sqlite import row_checksums
from headworks._server.checked_sqlite.salvage import intact_rows
from headworks._subject import Subject
from headworks.errors import HeadworksError
from tests.soak.damage_kinds import FILE_KINDS

_PAGE_BYTES = 4096
_ROUNDS = 4
_KINDS = (
    "flipped",
    "overwritten",
    "zeroed",
    "inserted into",
    "cut",
    "halved",
    "emptied",
    "garbage",
    "appended to",
    "deleted",
)
_WEIGHTS = {"": 5, "-wal": 5, "-commits": 1, "-checked": 1}  # how often each file is damaged
Rows = dict[str, set[tuple[Any, ...]]]


@dataclass(frozen=True, slots=True)
class StoreKind:
    """A store: how its program fills and opens it, and what is left out of the ledger."""

    file: str
    fill: Callable[[Path], Callable[[], None]]  # returns how to close it
    open: Callable[[Path], None]
    arguments: Callable[[Path], list[str]] = lambda _: []  # more of a command
    catch_up: Callable[[Path], None] | None = None  # from the source that it is made of
    not_counted: Collection[str] = ()
    depends: tuple[tuple[str, str], ...] = ()  # rows of the first go with those of the second
    cached: bool = False


@dataclass(slots=True)
class _Template:
    folder: Path
    rows: Rows
    places: dict[str, dict[tuple[Any, ...], int]] = field(default_factory=dict)


class StoreSite:
    """The file of a store: as it is after an orderly stop, and as a killed program leaves it."""

    def __init__(self, folder: Path, kind: StoreKind) -> None:
        self._folder, self._kind = folder, kind
        self._templates: list[_Template] = []

    def prepare(self) -> None:
        """Fill a store, and copy it while it is open, and after it is closed."""
        made = self._folder / "made"
        (made / "broker").mkdir(parents=True)
        close = self._kind.fill(made)
        shutil.copytree(made, self._folder / "killed")
        close()
        shutil.copytree(made, self._folder / "stopped")
        for name in ("stopped", "killed"):
            folder = self._folder / name
            read = self._folder / f"read-{name}"
            shutil.copytree(folder, read)
            template = _Template(folder, _rows(read / self._kind.file))
            with closing(sqlite3.connect(read / self._kind.file)) as db:
                names = row_checksums.protected_tables(db)
                for row in intact_rows(folder / self._kind.file, db, names, []):
                    template.places.setdefault(row.table, {})[row.values] = row.at
            self._templates.append(template)

    def run(self, folder: Path, random: Random) -> tuple[str, str, list[str]]:
        """Run a case; see `Site`."""
        template = random.choice(self._templates)
        shutil.copytree(template.folder, folder)
        file = folder / self._kind.file
        damaged = _one_of(file, random)
        in_log = damaged.name.endswith("-wal")
        name = random.choice(_KINDS)
        damage = FILE_KINDS[name](damaged, random)
        case = _StoreCase(self._kind, template, folder, in_log=in_log)
        ending = "served" if damage is None else case.follow()
        if not case.wrong:
            shutil.rmtree(folder)
        told = f"{template.folder.name}, {damaged.name.removeprefix(file.name) or 'file'} {name}"
        return told, ending, [f"{damage}: {line}" for line in case.wrong]


def _one_of(file: Path, random: Random) -> Path:
    """Choose the file, or one beside it that is not empty."""
    weights = {
        path: weight
        for suffix, weight in _WEIGHTS.items()
        if (path := file.with_name(file.name + suffix)).exists() and path.stat().st_size
    }
    return random.choices(list(weights), list(weights.values()))[0]


class _StoreCase:
    def __init__(self, kind: StoreKind, template: _Template, folder: Path, *, in_log: bool) -> None:
        self.wrong: list[str] = []
        self._kind, self._template, self._folder = kind, template, folder
        self._in_log = in_log
        self._file = folder / kind.file
        self._whole = self._whole_rows()

    def _whole_rows(self) -> Rows:
        """Return the rows whose page is as it was, if the log is as it was too."""
        before = (self._template.folder / self._kind.file).read_bytes()
        after = self._file.read_bytes() if self._file.exists() else b""
        found: Rows = defaultdict(set)
        if self._in_log or after[:100] != before[:100] or len(after) % _PAGE_BYTES:
            return found
        for table, rows in self._template.places.items():
            for row, at in rows.items():
                page = at // _PAGE_BYTES * _PAGE_BYTES
                if before[page : page + _PAGE_BYTES] == after[page : page + _PAGE_BYTES]:
                    found[table].add(row)
        return found

    def follow(self) -> str:
        """Open the store, and do as it says, until it is served."""
        words = _Words()
        logging.getLogger("headworks").addHandler(words)
        try:
            return self._follow(words)
        finally:
            logging.getLogger("headworks").removeHandler(words)

    def _follow(self, words: _Words) -> str:
        ending = "served"
        for _ in range(_ROUNDS):
            try:
                self._kind.open(self._folder)
            except HeadworksError as error:
                if self._file.name not in str(error):
                    self.wrong.append(f"the file is not named: {error}")
                if not self._mend(str(error)):
                    ending = "restored"
                    self._restore(str(error))
                elif ending == "served":
                    ending = "repaired"
                continue
            told = ending != "served" or bool(words.lines)
            self._judge(told=told)
            return "wrong" if self.wrong else ending
        self.wrong.append(f"not mended in {_ROUNDS} rounds")
        return "wrong"

    def _mend(self, words: str) -> bool:
        commands = re.findall(r"`(headworks [^`]*salvage[^`]*)`", words)
        if not commands:
            return False
        arguments = [*shlex.split(commands[-1])[1:], *self._kind.arguments(self._folder)]
        done = CliRunner().invoke(command_line(arguments[0]), arguments)
        if done.exception is not None and not isinstance(
            done.exception, HeadworksError | SystemExit
        ):
            self.wrong.append(f"{commands[-1]}: {done.exception!r}")
        return done.exit_code == 0

    def _restore(self, words: str) -> None:
        """Follow the way out that needs no row: start over from the source, or a copy."""
        if "restore it" not in words and "move" not in words:
            self.wrong.append(f"no way out: {words}")
        shutil.rmtree(self._folder)
        if self._kind.catch_up is not None:
            self._folder.mkdir()
        else:
            shutil.copytree(self._template.folder, self._folder)

    def _judge(self, *, told: bool) -> None:
        if self._kind.catch_up is not None:
            self._kind.catch_up(self._folder)
        found = _rows(self._file)
        for table, rows in self._template.rows.items():
            if table in self._kind.not_counted:
                continue
            now = found.get(table, set())
            made_up, lost = now - rows, rows - now
            if made_up:
                self.wrong.append(f"{table}: never written: {sorted(made_up, key=repr)[:2]}")
            if lost and not told and not self._kind.cached:
                self.wrong.append(f"{table}: silently lost: {sorted(lost, key=repr)[:2]}")
            whole = lost & self._whole[table] if table in self._whole else set()
            if whole and not self._kind.cached and not self._gone_with_others(table, found):
                self.wrong.append(f"{table}: whole, and lost: {sorted(whole, key=repr)[:2]}")

    def _gone_with_others(self, table: str, found: Rows) -> bool:
        return any(
            first == table and found.get(second, set()) != self._template.rows[second]
            for first, second in self._kind.depends
        )


class _Words(logging.Handler):
    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(record.getMessage())


def _rows(path: Path) -> Rows:
    with closing(sqlite3.connect(path)) as db:
        return {
            table: {
                tuple(row)
                for row in db.execute(
                    "SELECT "
                    + ", ".join(f'"{name}"' for name in row_checksums.columns(db, table))
                    + f' FROM "{table}"'
                )
            }
            for table in row_checksums.protected_tables(db)
        }


def _fill_registry(folder: Path) -> Callable[[], None]:
    store = RegistryStore(f"sqlite:///{folder / 'registry.db'}")
    for number in range(60):
        subject = Subject(f".c{number % 3}" if number % 5 == 0 else ".", f"s{number % 17}-value")
        used = (SchemaReference("t.A", "s0-value", 1),) * (number % 4 == 3)
        text = json.dumps(
            {"type": "record", "name": f"R{number}", "doc": "d" * (number * 37 % 900)}
        )
        with store.write() as connection:
            last = schemas.last_id(connection, subject.context)
            given = (last or 0) + 1
            definition = Definition(text, used)
            added = StoredSchema(subject.context, given, definition.guid, definition, number)
            version = schema_writes.NewVersion(subject, number + 1, added, "w", number)
            schema_writes.add_version_of_new_schema(connection, version, last)
            if number % 6 == 0:
                settings.write_config(connection, str(subject), {"compatibilityLevel": "FULL"})
                settings.write_mode(connection, str(subject), "READONLY")
    return store.close


def _topic_of_increments() -> list[list[Increment]]:
    """Return the messages of the audit topic: batches of 40, always the same."""
    random = Random(5)
    producer = {"attempted": 4, "delivered": 3, "dropped:queue_full": 1}
    return [
        [
            Increment(
                str(UUID(int=random.getrandbits(128))),
                f"topic{random.randrange(9)}",
                tier,
                random.randrange(20) * 600_000,
                producer if tier == "producer" else {"loaded": 3, "late": 1},
                0,
                f"host{number % 3}",
                "app",
                number * 1000 + random.randrange(900),
            )
            for tier in ("producer", "hadoop") * 20
        ]
        for number in range(12)
    ]


def _fill_audit(folder: Path) -> Callable[[], None]:
    """Read the topic from the positions in the store to its end, as the reconciler does."""
    store = AuditStore(f"sqlite:///{folder / 'audit.db'}")
    for number, batch in enumerate(_topic_of_increments()):
        with store.read() as connection:
            start = positions(connection)
        if start.get(0, 0) == number * 40:
            end, read_at = {0: (number + 1) * 40}, number * 1000 + 950
            apply(store, IncrementBatch(start, end, batch, read_at, live=True))
    return store.close


def _fill_coordination(folder: Path) -> Callable[[], None]:
    path = folder / "broker" / "coordination.sqlite"

    async def fill() -> LocalCoordination:
        store = LocalCoordination(path)
        for number in range(20):
            topic = Topic(f"topic{number}", (1,) * (number % 3 + 1), {"retention.ms": str(number)})
            await store.create_topic(topic)
            for group in range(6):
                keys = [(topic.name, index) for index in range(number % 3 + 1)]
                at = CommittedOffset(number * 1000 + group, -1, "m" * group, topic.topic_id)
                await store.commit_offsets(f"group{group}", dict.fromkeys(keys, at), "consumer")
        await store.allocate_producer_ids(3)
        return store

    store = asyncio.run(fill())
    for number in range(20):
        for index in range(number % 3 + 1):
            log = folder / "broker" / "logs" / f"topic{number}-{index}"
            log.mkdir(parents=True)
            (log / f"{0:020}.log").touch()
    return lambda: asyncio.run(store.close())


def _fill_cache(folder: Path) -> Callable[[], None]:
    known = KnownSchemas(folder / "schemas.sqlite", "http://registry")
    for number in range(1, 80):
        known.add(f"s{number % 9}-value", number)
        known.add_text(number, f'{{"type": "string", "doc": "{"d" * (number * 31 % 700)}"}}')
    return known.close


def _open_coordination(folder: Path) -> None:
    asyncio.run(LocalCoordination(folder / "broker" / "coordination.sqlite").close())


STORES = {
    "registry store": StoreKind(
        "registry.db",
        _fill_registry,
        lambda folder: RegistryStore(f"sqlite:///{folder / 'registry.db'}").close(),
        not_counted=("schema_migrations", "state", "contexts"),
        depends=(
            ("versions", "schemas"),
            ("schemas", "schema_references"),
            ("versions", "schema_references"),
            ("schema_references", "schemas"),
        ),
    ),
    "audit store": StoreKind(
        "audit.db",
        _fill_audit,
        lambda folder: AuditStore(f"sqlite:///{folder / 'audit.db'}").close(),
        catch_up=lambda folder: _fill_audit(folder)(),
        not_counted=("audit_schema_migrations", "audit_state"),
    ),
    "coordination store": StoreKind(
        "broker/coordination.sqlite",
        _fill_coordination,
        _open_coordination,
        arguments=lambda folder: ["--data-dir", str(folder)],
        not_counted=("topics", "facts"),
    ),
    "schema cache": StoreKind(
        "schemas.sqlite",
        _fill_cache,
        lambda folder: KnownSchemas(folder / "schemas.sqlite", "http://registry").close(),
        cached=True,
    ),
}
