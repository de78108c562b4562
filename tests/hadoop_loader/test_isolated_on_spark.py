"""One table that the real metastore cannot change: all others are loaded, and later this one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from hadoop_loader import Warehouse, WarehouseConfig
from hadoop_loader._commit.policy import Policy
from headworks.errors import FindingsError
from tests.hadoop_loader.real import Stage

pytestmark = [pytest.mark.e2e, pytest.mark.spark]


def test_somebody_has_a_table_where_a_view_belongs(
    stage: Stage, spark: Any, tmp_path: Path
) -> None:
    clicks, views = stage.topic("clicks"), stage.topic("views")
    table = f"isolated.{clicks.replace('.', '_')}"
    config = WarehouseConfig(
        data_dir=tmp_path,
        bootstrap=stage.broker.address,
        registry=stage.registry.url,
        database="isolated",
        policy=Policy(allow=rf"{stage.stem}\..*"),
    )

    def count(topic: str) -> int:
        name = topic.replace(".", "_")
        return int(spark.sql(f"SELECT count(*) FROM isolated.{name}").first()[0])

    with Warehouse.open(config, spark=spark) as warehouse:
        spark.sql(f"CREATE TABLE {table} (a int) USING parquet")
        for n in (1, 2):
            stage.send(clicks, 0, 0, 10)
            stage.send(views, 1, 0, 5)
            report = warehouse.load()
            (left,) = report.refused
            assert left.topic == clicks
            assert "cannot be changed: the metastore says" in left.reason
            assert "fix: repair the table in the metastore, or drop it" in left.reason
            assert report.left_out == "topics not loaded: 1"
            assert [one.topic for one in report.topics] == [views]
            assert count(views) == 5 * n
        with pytest.raises(FindingsError, match="cannot be changed: the metastore says"):
            warehouse.compact(clicks)
        spark.sql(f"DROP TABLE {table}")
        report = warehouse.load()
        assert report.left_out is None
        assert (count(clicks), count(views)) == (20, 10)
