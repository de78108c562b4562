"""Where HDFS is, and what it says: without one. `tests/interop/test_hdfs.py` has the real one."""

from __future__ import annotations

import errno
import json
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path, PurePosixPath

import pytest

from hadoop_loader._storage.filesystem import hadoop_uri, parse_path
from hadoop_loader._storage.hdfs import hdfs_path
from hadoop_loader._storage.webhdfs import NameNodes, os_error_of
from headworks.errors import UnreachableError, UsageError

pytestmark = pytest.mark.unit

SITE = """<configuration>
  <property><name>dfs.ha.namenodes.prod</name><value>a, b</value></property>
  <property><name>dfs.namenode.http-address.prod.a</name><value>one:9870</value></property>
  <property><name>dfs.namenode.http-address.prod.b</name><value>two:9871</value></property>
  <property><name>dfs.namenode.http-address</name><value>0.0.0.0:50070</value></property>
</configuration>
"""


def said(kind: str, message: str) -> bytes:
    return json.dumps({"RemoteException": {"exception": kind, "message": message}}).encode()


@contextmanager
def name_node(status: int, body: bytes) -> Iterator[str]:
    """Something that answers every request so; its address."""

    class Answer(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *_: object) -> None:  # noqa: A002 - its name
            """Say nothing."""

    with HTTPServer(("127.0.0.1", 0), Answer) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


def test_name_nodes_are_where_hadoops_settings_say(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("HADOOP_CONF_DIR", raising=False)
    monkeypatch.setenv("HADOOP_USER_NAME", "etl")
    assert hdfs_path("hdfs://host:8020/w").nodes == NameNodes(("host:9870",), "etl")
    (tmp_path / "hdfs-site.xml").write_text(SITE)
    monkeypatch.setenv("HADOOP_CONF_DIR", str(tmp_path))
    assert hdfs_path("hdfs://prod/w").nodes.addresses == ("one:9870", "two:9871")
    assert hdfs_path("hdfs://host:8020/w").nodes.addresses == ("host:50070",)
    with pytest.raises(UsageError, match="hdfs:///w names no file system"):
        hdfs_path("hdfs:///w")


def test_a_place_of_hdfs_has_the_names_of_a_path() -> None:
    place, path = parse_path("hdfs://host:8020/a/b.json/"), PurePosixPath("/a/b.json")
    assert hadoop_uri(place) == str(place) == "hdfs://host:8020/a/b.json"
    for ours, theirs in (
        (place / "c", path / "c"),
        (place.parent, path.parent),
        (place.with_name("d"), path.with_name("d")),
        (place.with_suffix(".e"), path.with_suffix(".e")),
    ):
        assert str(ours) == f"hdfs://host:8020{theirs}"
    assert (place.name, place.stem) == (path.name, path.stem)
    assert parse_path("hdfs://host:8020/") / "a" == parse_path("hdfs://host:8020/a")


@pytest.mark.parametrize(
    ("status", "body", "kind", "words"),
    [
        (404, said("FileNotFoundException", "no /a\nat b"), FileNotFoundError, "no /a"),
        (403, said("FileAlreadyExistsException", "/a exists"), FileExistsError, "exists"),
        (403, said("AccessControlException", "denied: bob"), PermissionError, "denied: bob"),
        (401, b"<html>", PermissionError, "requires Kerberos"),
        (500, b"<html>", OSError, "HDFS answers 500: <html>"),
    ],
)
def test_errors_of_hdfs_are_raised_as_os_errors(
    status: int, body: bytes, kind: type[OSError], words: str
) -> None:
    error = os_error_of(status, body, "/a")
    assert type(error) is kind
    assert words in str(error.strerror)


def test_a_file_that_another_writes_is_busy() -> None:
    error = os_error_of(403, said("RemoteException", "AlreadyBeingCreatedException: x"), "/a")
    assert error.errno == errno.EBUSY


@pytest.mark.e2e
def test_the_active_name_node_is_found_and_none_is_said_to_be_missing() -> None:
    standby = said("StandbyException", "Operation category READ is not supported in state standby")
    with ExitStack() as nodes:
        passive = nodes.enter_context(name_node(403, standby))
        active = nodes.enter_context(name_node(200, b'{"boolean": true}'))
        known = NameNodes(("127.0.0.1:1", passive, active), "etl")
        assert known.ask("GET", "/", "X") == {"boolean": True}
        with pytest.raises(UnreachableError, match=f"over WebHDFS: {passive} is on standby"):
            NameNodes(("127.0.0.1:1", passive), "etl").ask("GET", "/", "X")
