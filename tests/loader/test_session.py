"""What can be wrong before Spark starts, and who holds what."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from hadoop_loader import Warehouse, WarehouseConfig
from hadoop_loader.lock import WarehouseLock
from hadoop_loader.serve import serve
from hadoop_loader.session import check_java, check_metastore_free
from hadoop_loader.sql import QueryError, address_of, query
from headworks.errors import UnreachableError, UsageError


def config(folder: Path, **more: Any) -> WarehouseConfig:
    return WarehouseConfig(data_dir=folder, bootstrap="127.0.0.1:1", registry="http://x", **more)


def test_without_java_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", "/nonexistent")
    with pytest.raises(UsageError, match="no `java` on the PATH") as caught:
        check_java()
    assert "apt install openjdk-17" in str(caught.value)


def test_an_old_java_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    java = tmp_path / "bin" / "java"
    java.write_text("#!/bin/sh\necho 'openjdk version \"1.8.0_392\"' >&2\n")
    java.chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(UsageError, match="is Java 8; Spark needs 17"):
        check_java()
    java.unlink()
    with pytest.raises(UsageError, match="has no bin/java"):
        check_java()


def test_a_second_loader_leaves_with_a_message(tmp_path: Path) -> None:
    root = tmp_path / "warehouse"
    lock = WarehouseLock(root / "_headworks" / "lock")
    with pytest.raises(UsageError, match=f"in use by another loader, process {os.getpid()}"):
        Warehouse.open(config(tmp_path))
    lock.release()
    WarehouseLock(root / "_headworks" / "lock").release()


def test_a_killed_loader_holds_no_lock(tmp_path: Path) -> None:
    path = tmp_path / "_headworks" / "lock"
    code = (
        "import os, sys; from pathlib import Path; from hadoop_loader.lock import WarehouseLock; "
        f"lock = WarehouseLock(Path({str(path)!r})); os.kill(os.getpid(), 9)"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == -9
    WarehouseLock(path).release()


def test_a_warehouse_must_be_a_folder_that_can_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(UsageError, match="cannot be written"):
        Warehouse.open(config(tmp_path, warehouse=str(tmp_path / "file" / "x")))
    with pytest.raises(UsageError, match="is not a folder of this machine"):
        Warehouse.open(config(tmp_path, warehouse="s3://bucket/x"))


@pytest.mark.parametrize("text", ["here", ":1", "host:", "host:99999", "host:-1"])
def test_an_address_is_host_and_port(text: str) -> None:
    with pytest.raises(UsageError, match="is not an address"):
        address_of(text)


def test_no_server_is_unreachable() -> None:
    with pytest.raises(UnreachableError, match=r"no HiveServer2 answers at 127.0.0.1:1:"):
        query("127.0.0.1:1", "SELECT 1")


@pytest.mark.spark
def test_a_metastore_in_use_is_named(spark: Any, tmp_path: Path) -> None:
    spark.sql("SHOW DATABASES").collect()
    managed = Path("/", spark.conf.get("spark.sql.warehouse.dir").removeprefix("file:").lstrip("/"))
    with pytest.raises(UsageError, match=r"is in use by process \d+ \(java\)"):
        check_metastore_free(managed.parent, wait=0)
    check_metastore_free(tmp_path, wait=0)


@pytest.mark.spark
def test_serves_on_loopback_only(spark: Any) -> None:
    with pytest.raises(UsageError, match=r"does not listen on '0\.0\.0\.0'"):
        serve(spark, "0.0.0.0", 0)


@pytest.mark.spark
def test_a_wrong_query_is_the_servers_own_words(hive: str) -> None:
    with pytest.raises(QueryError, match="TABLE_OR_VIEW_NOT_FOUND"):
        query(hive, "SELECT * FROM nothing_like_that")
    assert query(hive, "SELECT 1 AS one").names == ("one",)
