"""An Iceberg catalog in SQLite, as the loader writes it and as others read it.

`jars` fetches what the loader publishes by (see `maven`). pyiceberg and DuckDB read the tables,
each by its own code.
"""

from __future__ import annotations

import importlib.util
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from hadoop_loader._iceberg.catalog_url import PROPERTY_PREFIX
from tests.interop import maven

_POM = Path(__file__).with_name("iceberg.xml")
NAMESPACE = "headworks_iceberg"


def jars() -> list[Path]:
    """Iceberg's jars; fetched once, then from the cache."""
    return maven.fetch(_POM, "iceberg", "Iceberg's runtime")


def spark_conf(folder: Path, *more: Path, properties: Mapping[str, str] | None = None) -> Path:
    """A folder for SPARK_CONF_DIR, with Iceberg and `more` jars on the class path.

    `properties` are those of the catalog, beside its URL.
    """
    folder.mkdir()
    places = [f"{jars()[0].parent}/*", *map(str, more)]
    settings = [f"spark.driver.extraClassPath {':'.join(places)}"]
    settings += [f"{PROPERTY_PREFIX}{name} {value}" for name, value in (properties or {}).items()]
    folder.joinpath("spark-defaults.conf").write_text("\n".join(settings), encoding="utf-8")
    return folder


def pyiceberg_table(database: Path, table: str) -> Any:
    """A table of the catalog in a file of SQLite."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from pyiceberg.catalog.sql import SqlCatalog

        catalog = SqlCatalog("headworks", uri=f"sqlite:///{database}", warehouse="unused")
        try:
            return catalog.load_table((NAMESPACE, table))
        finally:
            catalog.engine.dispose()


def pyiceberg_rows(table: Any) -> list[dict[str, Any]]:
    """The rows of a table by offset, as pyiceberg reads them."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found: list[dict[str, Any]] = table.scan().to_arrow().sort_by("_offset").to_pylist()
        return found


def duckdb_rows(table: Any) -> list[dict[str, Any]]:
    """The rows of a table by offset, as DuckDB reads them."""
    import duckdb

    with duckdb.connect() as connection:
        for name in ("avro", "iceberg"):
            connection.execute(f"LOAD '{_extension(name)}'")
        connection.execute("SET timezone = 'UTC'")
        place = table.metadata_location.removeprefix("file://")
        rows = connection.execute(f"SELECT * FROM iceberg_scan('{place}') ORDER BY _offset")
        found: list[dict[str, Any]] = rows.to_arrow_table().to_pylist()
        return found


def _extension(name: str) -> Path:
    """DuckDB's extension, from the package that holds it."""
    spec = importlib.util.find_spec(f"duckdb_extension_{name}")
    assert spec is not None
    assert spec.origin is not None
    (found,) = Path(spec.origin).parent.rglob(f"{name}.duckdb_extension")
    return found
