"""The rows and bytes that the metastore is told: when a table is new, has changed, or has grown."""

from __future__ import annotations

import pytest

from hadoop_loader._operations.load import Load
from tests.hadoop_loader.memory import MemoryCatalog, World, encoded
from tests.hadoop_loader.test_loading import V1, V2

pytestmark = pytest.mark.unit

TABLES = 10
A_LOAD = 4  # tables whose statistics one load may set besides


def told(catalog: MemoryCatalog) -> list[int]:
    """How many rows each table has, by its statistics."""
    return [int(catalog.properties[f"topic{n}"]["numRows"]) for n in range(TABLES)]


def test_statistics_of_many_tables_are_spread_over_loads(world: World) -> None:
    ids = [world.register(f"topic{n}", V1) for n in range(TABLES)]

    def load(rows: int) -> list[int]:
        for n in range(TABLES):
            for _ in range(rows):
                world.log.append(f"topic{n}", encoded(V1, {"at": 0, "n": n}, ids[n]))
        Load(world.context()).run()
        return told(world.catalog)

    assert load(4) == [4] * TABLES, "new tables are told with their columns"
    assert all(int(world.catalog.properties[f"topic{n}"]["totalSize"]) for n in range(TABLES))
    counts = load(4)  # of the others, those that have outgrown theirs the most
    assert sorted(counts) == [4] * (TABLES - A_LOAD) + [8] * A_LOAD
    counts = load(1)
    assert sorted(counts) == [4] * (TABLES - 2 * A_LOAD) + [8] * A_LOAD + [9] * A_LOAD
    counts = load(0)
    assert counts.count(4) == TABLES - 2 * A_LOAD, "nothing is asked about a table without new rows"
    counts = load(1)
    assert min(counts) > 4


def test_statistics_of_a_changed_table_are_told_with_its_columns(world: World) -> None:
    ids = [world.register(f"topic{n}", V1) for n in range(TABLES)]
    for n in range(TABLES):
        world.log.append(f"topic{n}", encoded(V1, {"at": 0, "n": n}, ids[n]))
    Load(world.context()).run()
    for n in range(TABLES):
        changed = world.register(f"topic{n}", V2)
        row = {"at": 0, "n": n, "how": "touch"}
        world.log.append(f"topic{n}", encoded(V2, row, changed))
    Load(world.context()).run()
    assert told(world.catalog) == [2] * TABLES
