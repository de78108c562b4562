"""`headworks sql` without a server that runs: its own goes by the settings."""

from __future__ import annotations

from pathlib import Path

import pytest

from hadoop_loader._config import WarehouseConfig
from hadoop_loader._spark.sql import _server_message
from headworks._cli.sql import sql
from headworks.errors import UsageError

pytestmark = pytest.mark.unit


def test_spark_runs_where_the_setting_says(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "metastore").mkdir()
    monkeypatch.setenv("HEADWORKS_SPARK_MASTER", "spark://workers:7077")
    started: list[WarehouseConfig] = []

    def start(config: WarehouseConfig) -> None:
        started.append(config)
        raise UsageError("seen enough")

    monkeypatch.setattr("hadoop_loader._spark.session.start_session", start)
    with pytest.raises(UsageError, match="seen enough"):
        sql("SELECT 1", data_dir=str(tmp_path))
    assert started[0].master == "spark://workers:7077"


def test_options_name_another_warehouse_master_and_metastore(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[WarehouseConfig] = []

    def start(config: WarehouseConfig) -> None:
        seen.append(config)
        raise UsageError("seen enough")

    monkeypatch.setattr("hadoop_loader._spark.session.start_session", start)
    folder = str(tmp_path / "w")
    with pytest.raises(UsageError, match="seen enough"):
        sql("SELECT 1", warehouse=folder, master="yarn", metastore="thrift://m:9083")
    assert (str(seen[0].root), seen[0].master) == (folder, "yarn")
    assert seen[0].metastore_uri == "thrift://m:9083"


@pytest.mark.parametrize(
    ("told", "shown"),
    [
        (
            "ParseException:\n[PARSE_SYNTAX_ERROR] near 'SELEC'\n\n== SQL ==",
            "ParseException: [PARSE_SYNTAX_ERROR] near 'SELEC'",
        ),
        ("Table not found: orders\nat line 1", "Table not found: orders"),
        (
            "Error running query: [NOT_FOUND] org.apache.spark.sql.AnalysisException: "
            "[NOT_FOUND] The table `x` cannot be found.",
            "[NOT_FOUND] The table `x` cannot be found.",
        ),
        ("", "no reason"),
    ],
)
def test_a_failed_query_shows_its_reason(told: str, shown: str) -> None:
    assert _server_message(Exception(told)) == shown
