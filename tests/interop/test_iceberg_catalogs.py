"""The kinds of Iceberg catalogs beside JDBC: a REST server, and a Hive metastore."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from hadoop_loader import WarehouseConfig
from hadoop_loader._decode.quarantine import QUARANTINE_TABLE
from hadoop_loader._fetch.messages import FetchedMessage
from hadoop_loader._fetch.position import RewindPosition
from hadoop_loader._operations.compact import Compaction
from hadoop_loader._operations.drop import Drop
from hadoop_loader._operations.erase import Erase, EraseCondition
from hadoop_loader._operations.load import Load
from hadoop_loader._operations.rewind import Rewind
from hadoop_loader._spark.session import start_session, stop_session
from tests.hadoop_loader.test_loading import DAY, V1, V2, Killed, click, killer
from tests.interop import iceberg
from tests.interop.published import Published
from tests.interop.rest_catalog import rest_catalog
from tests.soak.hive import metastore

pytestmark = [pytest.mark.contract, pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def session(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    folder = tmp_path_factory.mktemp("catalogs")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SPARK_CONF_DIR", str(iceberg.spark_conf(folder / "conf")))
        spark = start_session(WarehouseConfig(data_dir=folder, bootstrap="", registry=""))
        yield spark
        stop_session(spark)


@pytest.fixture(params=["rest", pytest.param("hive", marks=pytest.mark.minutes)])
def catalog(request: pytest.FixtureRequest, session: Any, tmp_path: Path) -> Iterator[str]:
    if request.param == "rest":
        with rest_catalog(session, tmp_path) as url:
            yield url
    else:
        (tmp_path / "hive").mkdir()
        with metastore(tmp_path / "hive") as url:
            yield url


def static_table(location: str) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from pyiceberg.table import StaticTable

        return StaticTable.from_metadata(location)


def test_every_change_reaches_the_catalog(catalog: str, session: Any, tmp_path: Path) -> None:
    published = Published(session, tmp_path, catalog)
    world = published.world

    def rows() -> list[tuple[int, str | None]]:
        return sorted((row["n"], row.get("how")) for row in read("clicks"))

    def read(table: str) -> list[dict[str, Any]]:
        location = published.location(table)
        assert location is not None
        return iceberg.pyiceberg_rows(static_table(location))

    world.register("clicks", V1)
    for n in range(4):
        click(world, n, n % 2 * DAY)
        published.load()
    assert rows() == [(n, None) for n in range(4)]
    messages = world.log.topics["clicks"][0]
    for key in (b"2", b"9"):  # of messages that are no rows
        messages.append(FetchedMessage(0, len(messages), DAY, key, b"?"))
    click(world, 4, schema=V2, schema_id=world.register("clicks", V2))
    with pytest.raises(Killed):
        Load(published.context(on_step=killer("publishing"))).run()
    published.load()
    wanted: list[tuple[int, str | None]] = [*((n, "mouse") for n in range(4)), (4, "touch")]
    assert rows() == wanted
    Compaction(published.context(), min_small_files=2).run()
    Rewind(published.context()).run("clicks", RewindPosition.parse("earliest"))
    assert rows() == wanted
    Erase(published.context()).run(EraseCondition.parse("n = 2"))
    assert rows() == [one for one in wanted if one[0] != 2]
    published.load(now=lambda: 9000.0)  # the replaced files are removed, after their snapshots
    assert rows() == [one for one in wanted if one[0] != 2]
    (bad,) = read(QUARANTINE_TABLE)
    assert (bad["key"], bad["value"], bad["_topic_partition"]) == (b"9", b"?", 0)
    assert bad["_timestamp"].date().isoformat() == "1970-01-02"
    world.log.topics.pop("clicks")
    Drop(published.context()).run("clicks")
    assert published.location("clicks") is None
