"""The files of a warehouse, damaged: commit log, texts, held tables, lock, and table files.

The loader runs without Spark, beside a broker in memory. The ledger is all rows of the tables.

- A file that the loader needs is refused by the load, or a file of a table by the comparison of
  rows with commits. The case then copies that file from a copy, as docs/backup.md says.
- A file that only people read may be damaged: the rows are right without it.
"""

from __future__ import annotations

import copy
import re
import shutil
from collections import Counter
from pathlib import Path
from random import Random

from hadoop_loader._operations.load import Load
from hadoop_loader._operations.status import warehouse_status
from hadoop_loader._operations.verify import count_rows
from hadoop_loader._storage.filesystem import AnyPath
from headworks.errors import CorruptError, HeadworksError
from tests.hadoop_loader.memory import World, encoded
from tests.hadoop_loader.test_loading import V1, V2
from tests.soak.damage_kinds import FILE_KINDS

_KINDS = (
    "flipped",
    "overwritten",
    "inserted into",
    "cut",
    "halved",
    "emptied",
    "deleted",
    "garbage",
    "appended to",
)
_ROUNDS = 6
_DAY_MS = 86_400_000
_PLACES = (
    "_headworks/commits/*.json",
    "_headworks/commits/*.applied",
    "_headworks/commits/*.report",
    "_headworks/schemas/*",
    "_headworks/field-ids/*",
    "_headworks/layouts/*",
    "_headworks/held/*",
    "_headworks/retired/*",
    "_headworks/*.report",
    "_headworks/*lock*",
    "*/datepartition=*/*.parquet",
)


class WarehouseSite:
    """The folder of a warehouse after some loads, one of which wrote the first files of a table."""

    def __init__(self, folder: Path) -> None:
        self._root = folder / "made"
        self._world = World(self._root)
        self._rows: Counter[tuple[str, int]] = Counter()

    def prepare(self) -> None:
        """Load two topics a few times, one of them in two versions of its schema."""
        world = self._world
        for topic in ("clicks", "views"):
            world.register(topic, {**V1, "headworks": {"topic": topic, "event_time": "at"}})
        self._load(world, range(40))
        world.register("clicks", V2)
        self._load(world, range(40, 60))
        self._rows = _rows(world)
        assert self._rows == _expected(range(60))

    @staticmethod
    def _load(world: World, numbers: range) -> None:
        for start in range(numbers.start, numbers.stop, 10):
            _send(world, range(start, start + 10))
            Load(world.context()).run()

    def run(self, folder: Path, random: Random) -> tuple[str, str, list[str]]:
        """Run a case; see `Site`."""
        shutil.copytree(self._root, folder)
        world = _moved(self._world, folder)
        damage = None
        while damage is None:
            place, name = random.choice(_PLACES), random.choice(_KINDS)
            files = sorted(folder.glob(place))
            if files:
                file = random.choice(files)
                damage = FILE_KINDS[name](file, random)
        _send(world, range(60, 70))
        case = _WarehouseCase(world, folder, self._root, self._rows + _expected(range(60, 70)))
        ending = case.follow()
        if not case.wrong:
            shutil.rmtree(folder)
        return f"{place} {name}", ending, [f"{damage}: {line}" for line in case.wrong]


class _WarehouseCase:
    def __init__(
        self, world: World, root: Path, copied: Path, expected: Counter[tuple[str, int]]
    ) -> None:
        self.wrong: list[str] = []
        self._world, self._root, self._copy = world, root, copied
        self._expected = expected

    def follow(self) -> str:
        """Load and compare, and copy back each file that is named, until all rows are right."""
        ending = "served"
        for _ in range(_ROUNDS):
            try:
                report = Load(self._world.context()).run()
                if report.left_out is not None:  # a topic: the others are loaded
                    raise CorruptError(str(report.as_dict()))
                tables = count_rows(self._root, read_files=True)
                warehouse_status(self._root)
            except HeadworksError as error:
                named = re.search(rf"{self._root}/(\S+?)(?=[ :,']|$)", str(error), re.MULTILINE)
                if not self._copy_back(named[1] if named else "_headworks/commits", str(error)):
                    return "wrong"
                ending = "repaired"
                continue
            short = [one.table for one in tables if one.in_files != one.in_commits]
            if short:
                for table in short:
                    self._copy_back(table, "rows differ")
                ending = "repaired"
                continue
            found = _rows(self._world)
            if found != self._expected:
                self.wrong.append(f"rows: {found - self._expected}, {self._expected - found}")
            return "wrong" if self.wrong else ending
        self.wrong.append(f"not mended in {_ROUNDS} rounds")
        return "wrong"

    def _copy_back(self, name: str, words: str) -> bool:
        """Copy a file, or the files of a folder, from the copy of the warehouse."""
        source, target = self._copy / name, self._root / name
        if not source.exists():
            self.wrong.append(f"no way out: {words}")
            return False
        if source.is_dir():
            shutil.copytree(source, target, dirs_exist_ok=True)
        else:
            shutil.copy(source, target)
        return True


def _send(world: World, numbers: range) -> None:
    for n in numbers:
        for topic, schema_id in (("clicks", 1), ("views", 2)):
            value = encoded(V1, {"at": n % 3 * _DAY_MS, "n": n}, schema_id)
            world.log.append(topic, value, partition=n % 2)


def _expected(numbers: range) -> Counter[tuple[str, int]]:
    return Counter((table, n) for table in ("clicks", "views") for n in numbers)


def _rows(world: World) -> Counter[tuple[str, int]]:
    return Counter((t, row["n"]) for t in ("clicks", "views") for row in world.rows(t))


def _moved(world: World, to: Path) -> World:
    """Return a copy of everything but the files, for a copy of the folder."""
    new, old = copy.deepcopy(world), str(world.root)
    new.root = to

    def moved(path: AnyPath) -> Path:
        return to / str(path).removeprefix(f"{old}/")

    catalog = new.catalog
    catalog.locations = {name: moved(path) for name, path in catalog.locations.items()}
    catalog.days = {
        name: {day: moved(path) for day, path in days.items()}
        for name, days in catalog.days.items()
    }
    return new
