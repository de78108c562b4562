"""What must be in a warehouse of clicks after its loaders were killed, asked over HiveServer2."""

from __future__ import annotations

from typing import Any

from hadoop_loader import Warehouse
from hadoop_loader._fetch.position import RewindPosition
from hadoop_loader._spark import sql as hive_sql
from tests.hadoop_loader.test_killed import Stack

WANTED = "count(*) AS n, count(DISTINCT _partition, _offset) AS messages, sum(n) AS total"


def all_there(warehouse: Warehouse, stack: Stack) -> None:
    host, port = warehouse.serve()
    address = f"{host}:{port}"

    def ask(question: str) -> list[tuple[Any, ...]]:
        return hive_sql.query(address, question).rows

    whole = [(150, 150, sum(range(150)))]
    assert not warehouse.load().refused
    assert ask(f"SELECT {WANTED} FROM clicks") == whole
    assert ask("SELECT how, count(*) FROM clicks GROUP BY how ORDER BY how") == [
        ("mouse", 100),
        ("touch", 50),
    ]
    compacted = warehouse.compact()
    assert compacted.files_after < compacted.files_before
    assert ask(f"SELECT {WANTED} FROM clicks") == whole
    assert warehouse.rewind("clicks", RewindPosition.parse("10")).committed
    assert ask(f"SELECT {WANTED} FROM clicks") == whole
    assert warehouse.rebuild("clicks").committed
    assert ask(f"SELECT {WANTED} FROM clicks") == whole
    busy = stack.headworks("load", "run")
    assert (busy.returncode, "in use by another loader" in busy.stderr) == (2, True)
