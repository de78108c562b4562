"""Trouble with one table: a step of apply that fails as long as it lasts."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

from hadoop_loader._operations.audit_counts import audit_events
from hadoop_loader._storage import filesystem, fsync
from hadoop_loader._storage.filesystem import AnyPath
from headworks.errors import UnreachableError
from tests.hadoop_loader.memory import MemoryCatalog, World, encoded
from tests.hadoop_loader.test_loading import HOUR, V1, V2

TOPICS = ("clicks", "taps", "views")
STATEMENTS = ("put_table", "put_view", "add_days")
FILE_STEPS = ("rename", "sync_folders")
REASON = "it is in use by somebody"


class Trouble:
    """One table that fails in one step, while `on`; the k-th time and later."""

    def __init__(self, step: str, table: str, after: int = 0) -> None:
        self.step, self.table, self.after, self.on = step, table, after, True

    def strike(self, step: str, where: str) -> None:
        if self.on and step == self.step and self.table in where.split("/"):
            self.after -= 1
            if self.after < 0:
                raise (
                    OSError(5, REASON, where) if step in FILE_STEPS else UnreachableError(REASON)
                )


class TroubledCatalog(MemoryCatalog):
    """A metastore in trouble with one table."""

    def __init__(self, trouble: Trouble) -> None:
        super().__init__()
        for name in (*STATEMENTS, "relocate"):
            setattr(self, name, self._troubled(name, getattr(self, name), trouble))

    @staticmethod
    def _troubled(name: str, done: Callable[..., Any], trouble: Trouble) -> Callable[..., Any]:
        def statement(table: str, *arguments: Any) -> None:
            if name == "relocate" and arguments[0]:  # it goes partition by partition
                folders = dict(arguments[0])
                day = min(folders)
                done(table, {day: folders.pop(day)})
                arguments = (folders,)
            trouble.strike(name, table)
            done(table, *arguments)

        return statement


@contextmanager
def troubled(world: World, found: Trouble) -> Iterator[Trouble]:
    """Let the world have this trouble."""
    healthy = world.catalog
    catalog = TroubledCatalog(found)
    vars(catalog).update(vars(healthy))
    for name in (*STATEMENTS, "relocate"):
        setattr(catalog, name, catalog._troubled(name, getattr(healthy, name), found))
    world.catalog = catalog

    def renaming(source: AnyPath, target: AnyPath) -> None:
        if ".staging" in str(source):
            found.strike("rename", str(target))
        filesystem.rename(source, target)

    def syncing(folders: Iterable[AnyPath]) -> None:
        wanted = list(folders)
        for folder in wanted:
            found.strike("sync_folders", str(folder))
        fsync.sync_folders(wanted)

    place = "hadoop_loader._commit.roll_forward"
    with patch(f"{place}.rename", renaming), patch(f"{place}.sync_folders", syncing):
        yield found
    if world.catalog is catalog:
        world.catalog = healthy


def produce(world: World, numbers: range, schema: Any = V1) -> None:
    """One event with each number in each topic, over some days."""
    for topic in TOPICS:
        writer = world.subjects[topic][0 if schema is V1 else -1]
        for n in numbers:
            more = {"how": "touch"} if schema is V2 else {}
            value = encoded(schema, {"at": n * 7 * HOUR, "n": n, **more}, writer.schema_id)
            world.log.append(topic, value, n * 7 * HOUR, n % 2)


def seen(world: World, topic: str) -> list[int]:
    """The numbers that a reader of the topic's table finds."""
    return sorted(row["n"] for row in world.rows(topic))


def counted(world: World, topic: str) -> int:
    """The messages that the audit has of a topic; an event that comes again counts once."""
    events = {
        event["id"]: event
        for commit in world.published
        for event in audit_events(commit, warehouse="w", host="h")
    }
    found = (event for event in events.values() if event["topic"] == topic)
    return sum(event["counts"].get("loaded", 0) for event in found)
