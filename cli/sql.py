"""`headworks sql`: run one statement on HiveServer2 through PyHive."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from headworks._cli.options import DatabaseOption, DataDirOption, WarehouseOption
from headworks._cli.output import (
    Format,
    FormatOption,
    number_of,
    print_json,
    print_status,
    print_table,
)
from headworks._cli.progress_lines import ProgressLines
from headworks._cli.warehouse_options import warehouse_folder
from headworks._settings import resolve, resolve_optional

if TYPE_CHECKING:
    from hadoop_loader._config import WarehouseConfig
    from hadoop_loader._spark.sql import QueryResult


def sql(
    statement: Annotated[str, typer.Argument(help="statement, such as SELECT count(*) FROM t")],
    hive: Annotated[
        str | None,
        typer.Option(help="HOST:PORT of a HiveServer2 (setting hive; default: start one)"),
    ] = None,
    data_dir: DataDirOption = None,
    warehouse: WarehouseOption = None,
    database: DatabaseOption = None,
    master: Annotated[
        str | None, typer.Option(help="where Spark runs, without --hive (setting spark_master)")
    ] = None,
    metastore: Annotated[
        str | None,
        typer.Option(help="metastore at thrift://HOST:PORT, without --hive (setting metastore)"),
    ] = None,
    format: FormatOption = Format.TEXT,
) -> None:
    """Query the Hive tables. Without --hive, starting a server takes about 15 seconds."""
    from hadoop_loader._config import WarehouseConfig
    from hadoop_loader._spark.sql import query

    name = resolve("database", database)
    address = resolve_optional("hive", hive)
    if address is not None:
        rows = query(address, statement, database=name)
    else:
        config = WarehouseConfig(
            data_dir=Path(resolve("data_dir", data_dir)),
            bootstrap="",
            registry="",
            database=name,
            master=resolve("spark_master", master),
            metastore_uri=resolve_optional("metastore", metastore),
            warehouse=warehouse_folder(data_dir, warehouse),
        )
        rows = _with_own_server(statement, config)
    if format is Format.JSON:
        print_json([dict(zip(rows.names, row, strict=True)) for row in rows.rows])
    elif rows.names:
        print_table(rows.names, rows.rows)
        print_status(number_of(len(rows.rows), "row"))


def _with_own_server(statement: str, config: WarehouseConfig) -> QueryResult:
    from hadoop_loader._spark.hiveserver2 import serve
    from hadoop_loader._spark.session import prepare_class_archive, start_session, stop_session
    from hadoop_loader._spark.sql import query
    from headworks.errors import UsageError

    if config.metastore_uri is None and not config.metastore.is_dir():
        raise UsageError(
            f"there is no metastore in {config.data_dir}",
            fix="load something first (`headworks load run`), or give --data-dir or --hive",
        )
    with ProgressLines("starting Spark") as lines:
        spark = start_session(config)
        try:
            host, port = serve(spark, "127.0.0.1", 0)
            lines.show("querying")
            rows = query(f"{host}:{port}", statement, database=config.database)
        finally:
            stop_session(spark)
    prepare_class_archive()
    return rows
