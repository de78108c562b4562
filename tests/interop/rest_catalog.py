"""A REST catalog as a server: Iceberg's own handlers, in Spark's JVM, behind Python's HTTP server.

The tables are in a catalog in SQLite, as in Iceberg's image for tests. It knows the requests that
the loader sends, and no more.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any
from urllib.parse import unquote, urlsplit

from py4j.protocol import Py4JJavaError

_STATUS = {
    "NoSuchTableException": 404,
    "NoSuchNamespaceException": 404,
    "AlreadyExistsException": 409,
    "CommitFailedException": 409,
}


class _Handlers:
    """Iceberg's answers to requests, as JSON."""

    def __init__(self, session: Any, folder: Path) -> None:
        self._jvm = jvm = session.sparkContext._jvm
        self._api = jvm.org.apache.iceberg
        properties = jvm.java.util.HashMap()
        for key, value in {
            "type": "jdbc",
            "uri": f"jdbc:sqlite:{folder}/rest.db",
            "jdbc.schema-version": "V1",
            "warehouse": f"file://{folder}/rest",
        }.items():
            properties.put(key, value)
        conf = session.sparkContext._jsc.hadoopConfiguration()
        self._catalog = self._api.CatalogUtil.buildIcebergCatalog("served", properties, conf)
        self._loader = jvm.java.lang.ClassLoader.getSystemClassLoader()
        self._array = session.sparkContext._gateway.new_array
        none = self._array(jvm.java.lang.Class, 0)
        mapper = self._class("RESTObjectMapper").getDeclaredMethod("mapper", none)
        mapper.setAccessible(True)
        self._mapper = mapper.invoke(None, self._array(jvm.java.lang.Object, 0))

    def answer(self, method: str, path: str, body: str) -> tuple[int, str]:
        """Return the status and the body of the answer to a request."""
        try:
            found = self._answer(method, [unquote(one) for one in path.split("/")[2:]], body)
        except Py4JJavaError as error:
            thrown = error.java_exception
            kind = thrown.getClass().getSimpleName()
            status = _STATUS.get(kind, 500)
            told = {"message": str(thrown.getMessage()), "type": kind, "code": status}
            return status, json.dumps({"error": told})
        if found is None:
            return 204, ""
        return 200, found if isinstance(found, str) else self._mapper.writeValueAsString(found)

    def _answer(self, method: str, parts: list[str], body: str) -> Any:
        handlers = self._api.rest.CatalogHandlers
        match parts:
            case ["config"]:
                return '{"defaults": {}, "overrides": {}}'
            case ["namespaces"]:
                return handlers.createNamespace(
                    self._catalog, self._read("CreateNamespaceRequest", body)
                )
            case ["namespaces", space]:
                found = handlers.loadNamespace(self._catalog, self._namespace(space))
                return None if method == "HEAD" else found
            case ["namespaces", space, "tables"]:
                request = self._read("CreateTableRequest", body)
                make = handlers.stageTableCreate if request.stageCreate() else handlers.createTable
                return make(self._catalog, self._namespace(space), request)
            case ["namespaces", space, "tables", table]:
                return self._of_table(method, space, table, body)
            case [*_, "metrics"]:
                return None
        raise AssertionError(f"{method} {parts}")

    def _of_table(self, method: str, space: str, table: str, body: str) -> Any:
        handlers = self._api.rest.CatalogHandlers
        name = self._api.catalog.TableIdentifier.of(self._namespace(space), table)
        if method == "DELETE":
            handlers.dropTable(self._catalog, name)
            return None
        if method == "POST":
            return handlers.updateTable(self._catalog, name, self._read("UpdateTableRequest", body))
        mode = getattr(self._api.rest, "RESTCatalogProperties$SnapshotMode").ALL
        found = handlers.loadTable(self._catalog, name, mode)
        return None if method == "HEAD" else found

    def _namespace(self, name: str) -> Any:
        levels = self._array(self._jvm.java.lang.String, 1)
        levels[0] = name
        return self._api.catalog.Namespace.of(levels)

    def _read(self, request: str, body: str) -> Any:
        return self._mapper.readValue(body, self._class(f"requests.{request}"))

    def _class(self, name: str) -> Any:
        return self._loader.loadClass(f"org.apache.iceberg.rest.{name}")


@contextmanager
def rest_catalog(session: Any, folder: Path) -> Iterator[str]:
    """The URL of a catalog whose tables are described in `folder`."""
    handlers = _Handlers(session, folder)

    class Request(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            size = int(self.headers.get("Content-Length") or 0)
            path = urlsplit(self.path).path
            status, body = handlers.answer(self.command, path, self.rfile.read(size).decode())
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body.encode())))
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(body.encode())

        do_POST = do_HEAD = do_DELETE = do_GET  # noqa: N815

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Request) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()
