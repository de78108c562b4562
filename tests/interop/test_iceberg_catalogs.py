"""The kinds of Iceberg catalogs beside SQLite.

REST: Iceberg's own handlers. A Hive metastore and PostgreSQL: their own servers. AWS Glue: as moto
has it, reached by Iceberg's own client for AWS.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from hadoop_loader import WarehouseConfig
from hadoop_loader._spark.session import start_session, stop_session
from tests.interop import iceberg, maven, s3
from tests.interop.published import Published, change_everything
from tests.interop.rest_catalog import rest_catalog
from tests.registry.postgresql import running_cluster
from tests.soak.hive import metastore

pytestmark = [pytest.mark.contract, pytest.mark.timeout(600)]

_GLUE_POM = Path(__file__).with_name("glue.xml")


@dataclass(frozen=True, slots=True)
class Place:
    """A folder, and what ends with the test: servers, a session, and variables."""

    folder: Path
    opened: ExitStack
    patch: pytest.MonkeyPatch

    def session(self, *jars: Path, properties: dict[str, str] | None = None) -> Any:
        """Start a session with further jars, and with properties of the catalog."""
        conf = iceberg.spark_conf(self.folder / "conf", *jars, properties=properties)
        self.patch.setenv("SPARK_CONF_DIR", str(conf))
        session = start_session(WarehouseConfig(data_dir=self.folder, bootstrap="", registry=""))
        self.opened.callback(stop_session, session)
        return session


def rest(place: Place) -> tuple[Any, str]:
    session = place.session()
    return session, place.opened.enter_context(rest_catalog(session, place.folder))


def hive(place: Place) -> tuple[Any, str]:
    (place.folder / "hive").mkdir()
    url = place.opened.enter_context(metastore(place.folder / "hive"))
    return place.session(), url


def postgresql(place: Place) -> tuple[Any, str]:
    cluster = place.opened.enter_context(running_cluster())
    user, _, address = cluster.new_store().removeprefix("postgresql://").partition("@")
    session = place.session(*maven.postgresql_driver(), properties={"jdbc.user": user})
    return session, f"jdbc:postgresql://{address}"


def glue(place: Place) -> tuple[Any, str]:
    """The files are local, so another class than Glue's default reads and writes them."""
    aws = place.opened.enter_context(s3.start(place.folder))
    s3.configure(place.patch, aws)
    session = place.session(
        *maven.fetch(_GLUE_POM, "glue", "Iceberg's client for AWS"),
        properties={
            "glue.endpoint": aws.url,
            "client.region": "us-east-1",
            "io-impl": "org.apache.iceberg.hadoop.HadoopFileIO",
        },
    )
    return session, "glue"


KINDS: list[Callable[[Place], tuple[Any, str]]] = [rest, hive, postgresql, glue]


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Place]:
    with ExitStack() as opened:
        yield Place(tmp_path, opened, monkeypatch)


@pytest.mark.parametrize(
    "kind",
    [pytest.param(kind, marks=pytest.mark.minutes if kind is not rest else ()) for kind in KINDS],
    ids=lambda kind: kind.__name__,
)
def test_every_change_reaches_the_catalog(
    kind: Callable[[Place], tuple[Any, str]], place: Place
) -> None:
    session, url = kind(place)
    change_everything(Published(session, place.folder, url))
