"""Restoring a warehouse onto an empty machine, by the commands of docs/backup.md."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from hadoop_loader import Warehouse, WarehouseConfig
from hadoop_loader._commit.policy import Policy
from hadoop_loader._operations.verify import count_rows
from tests.hadoop_loader.real import Stage
from tests.procedures import commands_of, run

pytestmark = [pytest.mark.e2e, pytest.mark.spark]

COPY_WAREHOUSE, RESTORE_WAREHOUSE = commands_of("Warehouse and metastore")
(REPLACE_FILE,) = commands_of("One damaged table file")


def warehouse(stage: Stage, data: Path, database: str, spark: Any) -> Warehouse:
    config = WarehouseConfig(
        data_dir=data,
        bootstrap=stage.broker.address,
        registry=stage.registry.url,
        database=database,
        policy=Policy(allow=rf"{stage.stem}\..*"),
    )
    return Warehouse.open(config, spark=spark)


def rows(spark: Any, database: str, topic: str) -> tuple[int, int]:
    """Rows, and different messages, that a query finds."""
    query = "SELECT count(*), count(DISTINCT _partition, _offset) FROM "
    found = spark.sql(f"{query}{database}.{topic.replace('.', '_')}").first()
    return found[0], found[1]


def test_a_warehouse_on_an_empty_machine(stage: Stage, spark: Any, tmp_path: Path) -> None:
    data, copy, other = tmp_path / "data", tmp_path / "copy", tmp_path / "other"
    copy.mkdir()
    clicks, views = stage.topic("clicks"), stage.topic("views")
    with warehouse(stage, data, "before_loss", spark) as opened:
        for _ in range(3):
            stage.send(clicks, 0, 0, 10)
            stage.send(views, 1, 0, 5)
            opened.load()
        opened.compact(clicks)
    run(COPY_WAREHOUSE, DATA=data, COPY=copy)
    with warehouse(stage, data, "before_loss", spark) as opened:
        stage.send(clicks, 1, 0, 7)
        opened.load()
    shutil.rmtree(data)

    run(RESTORE_WAREHOUSE, DATA=other, COPY=copy)
    with warehouse(stage, other, "after_loss", spark) as opened:
        assert opened.load().left_out is None
    assert rows(spark, "after_loss", clicks) == (37, 37)
    assert rows(spark, "after_loss", views) == (15, 15)
    root = other / "warehouse"
    assert [one.in_files - one.in_commits for one in count_rows(root)] == [0, 0]

    file = next((root / views.replace(".", "_")).rglob("*.parquet"))
    file.write_bytes(b"damaged")
    run(REPLACE_FILE, DATA=other, COPY=copy, FILE=str(file.relative_to(root)))
    spark.catalog.refreshTable(f"after_loss_files.{views.replace('.', '_')}")
    assert rows(spark, "after_loss", views) == (15, 15)
