"""Readers of a table's folder, which know neither the view nor the commit log.

The table "Readers" in docs/hadoop_loader.md has these figures.
"""

from __future__ import annotations

import importlib.util
import itertools
import json
import random
from collections import Counter
from collections.abc import Callable
from itertools import islice
from pathlib import Path
from typing import Any

import duckdb
import pyarrow.dataset as ds
import pytest

from hadoop_loader._operations.compact import Compaction
from hadoop_loader._operations.load import Load
from headworks.compatibility import check_pair
from headworks.schema import parse
from tests.evolution import value_of
from tests.hadoop_loader.memory import World, encoded
from tests.hadoop_loader.test_decode import same
from tests.hadoop_loader.test_loading import DAY
from tests.hadoop_loader.test_views import chain, resolved

pytestmark = pytest.mark.contract

TOPICS = 20
ROWS = 4  # of each version
Rows = list[dict[str, Any]]


def duckdb_rows(folder: Path, options: str = "") -> Rows:
    with duckdb.connect() as connection:
        connection.execute("SET timezone = 'UTC'")
        query = f"SELECT * FROM read_parquet('{folder}/**/*.parquet'{options}) ORDER BY _offset"
        found: Rows = connection.execute(query).to_arrow_table().to_pylist()
        return found


def duckdb_union(folder: Path) -> Rows:
    return duckdb_rows(folder, ", union_by_name=true")


def arrow_rows(folder: Path) -> Rows:
    """As pandas does, with `dtype_backend="pyarrow"`."""
    return list(ds.dataset(folder).to_table().sort_by("_offset").to_pylist())


def polars_rows(folder: Path) -> Rows:
    polars: Any = importlib.import_module("polars")
    found = polars.scan_parquet(f"{folder}/**/*.parquet").sort("_offset").collect()
    return list(found.to_arrow().to_pylist())


READERS: dict[str, Callable[[Path], Rows]] = {
    "DuckDB": duckdb_rows,
    "DuckDB, union_by_name": duckdb_union,
    "pyarrow.dataset": arrow_rows,
}
BEFORE = {
    "DuckDB": {"refuses": 15, "wrong": 5},
    "DuckDB, union_by_name": {"right": 2, "wrong": 18},
    "pyarrow.dataset": {"refuses": 3, "right": 2, "wrong": 15},
    "polars": {"refuses": 20},
}
if importlib.util.find_spec("polars") is not None:
    READERS["polars"] = polars_rows


def test_files_read_alike_once_all_are_in_the_latest_schema(tmp_path: Path) -> None:
    world, rng = World(tmp_path / "warehouse"), random.Random(22)
    evolutions = filter(followed, map(chain, itertools.count(4000)))
    chains = {f"topic{i}": versions for i, versions in enumerate(islice(evolutions, TOPICS))}
    expected: dict[str, Rows] = {topic: [] for topic in chains}
    for step in range(3):
        for topic, versions in chains.items():
            schema_id = world.register(topic, versions[step])
            for _ in range(ROWS):
                data = encoded(versions[step], value_of(versions[step], rng), schema_id)
                world.log.append(topic, data, step * DAY)
                expected[topic].append(resolved(data[5:], versions[step], versions[-1]))
        assert not Load(world.context()).run().refused
    folder = Path(str(world.root))
    before = {name: outcomes(read, folder, expected) for name, read in READERS.items()}
    Compaction(world.context(), every=True).run()
    Load(world.context(now=lambda: 9000.0)).run()  # removes the replaced files
    after = {name: outcomes(read, folder, expected) for name, read in READERS.items()}
    assert after == {name: {"right": TOPICS} for name in READERS}
    assert before == {name: BEFORE[name] for name in READERS}


def followed(versions: list[Any]) -> bool:
    """Whether the last version reads the first: a field renamed twice may know one name only."""
    first, _, last = (parse(json.dumps(version)) for version in versions)
    return not check_pair(last, first)


def outcomes(
    read: Callable[[Path], Rows], folder: Path, expected: dict[str, Rows]
) -> dict[str, int]:
    """Return how many tables a reader reads right, reads wrong, and refuses."""
    return dict(Counter(outcome(read, folder / topic, rows) for topic, rows in expected.items()))


def outcome(read: Callable[[Path], Rows], folder: Path, expected: Rows) -> str:
    try:
        found = read(folder)
    except Exception:
        return "refuses"
    names = expected[0].keys()
    right = len(found) == len(expected) and all(
        names <= row.keys() and same({name: row[name] for name in names}, wanted)
        for row, wanted in zip(found, expected, strict=True)
    )
    return "right" if right else "wrong"
