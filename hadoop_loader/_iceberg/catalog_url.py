"""The setting `iceberg`: the URL of a catalog, as properties of Iceberg's catalogs.

Rule: secrets are not in the URL. Other properties are Spark settings,
`spark.sql.catalog.headworks.NAME`, as for any Iceberg catalog of Spark.
"""

from __future__ import annotations

from headworks.errors import UsageError

CATALOG = "headworks"
PROPERTY_PREFIX = f"spark.sql.catalog.{CATALOG}."
# The warehouse's lock admits one writer. Hive's own lock would outlive a killed loader by minutes,
# and a metastore from Spark's jars has none.
_HIVE_TABLES = {"table-default.engine.hive.lock-enabled": "false"}


def catalog_properties(url: str, location: str) -> dict[str, str]:
    """Return the properties of the catalog at `url`; `location`: the folder of its metadata.

    Raises UsageError if there is no such kind of catalog.
    """
    if url.startswith("jdbc:"):
        return {"type": "jdbc", "uri": url, "jdbc.schema-version": "V1", "warehouse": location}
    if url.startswith(("http://", "https://")):
        return {"type": "rest", "uri": url}
    if url.startswith("thrift://"):
        return {"type": "hive", "uri": url, "warehouse": location, **_HIVE_TABLES}
    if url == "glue":
        return {"type": "glue"}
    raise UsageError(
        f"{url!r} is no Iceberg catalog",
        fix="set `iceberg` to jdbc:.., http(s)://.. (REST), thrift://HOST:PORT (Hive metastore), "
        "or glue",
    )
