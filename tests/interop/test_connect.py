"""Kafka Connect: a source that is exactly once though its worker is killed, and a sink."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from functools import partial
from pathlib import Path
from threading import Event, Thread

import pytest

from headworks._cli.stack.ports import free_ports
from headworks._server.child_process import Service
from tests.interop import apache_kafka
from tests.interop.programs import (
    PATIENCE_SECONDS,
    Follower,
    Program,
    create,
    messages,
    repeated_or_missing,
)
from tests.waiting import until

pytestmark = [pytest.mark.contract, pytest.mark.timeout(600)]
_TOPIC = "connected"
_PROGRESS = 300  # lines between two kills
_WORKER = {
    "group.id": "connect",
    "key.converter": "org.apache.kafka.connect.storage.StringConverter",
    "value.converter": "org.apache.kafka.connect.storage.StringConverter",
    **{f"{kind}.storage.topic": f"connect-{kind}" for kind in ("config", "offset", "status")},
    **{f"{kind}.storage.replication.factor": "1" for kind in ("config", "offset", "status")},
    **{f"{kind}.storage.partitions": "1" for kind in ("offset", "status")},
    "exactly.once.source.support": "enabled",
    "plugin.discovery": "service_load",
    "session.timeout.ms": "2000",  # of a worker that was killed
    "heartbeat.interval.ms": "300",
    "scheduled.rebalance.max.delay.ms": "0",
    "offset.flush.interval.ms": "500",
}
_NOT_YET = (404, 409, 500, 503)  # while the worker starts
_CONNECTORS = {
    "source": {
        "connector.class": "FileStreamSource",
        "topic": _TOPIC,
        "exactly.once.support": "required",
        # The source keeps lines read beyond a full batch until its file grows: no batch is full.
        "batch.size": "1000000",
    },
    "sink": {
        "connector.class": "FileStreamSink",
        "topics": _TOPIC,
        "consumer.override.isolation.level": "read_committed",
    },
}


class LineWriter:
    """Appends numbered lines to a file, a few at a time."""

    def __init__(self, path: Path) -> None:
        self.lines = 0
        self._path = path
        self._stop = Event()
        self._thread = Thread(target=self._run, daemon=True)

    def __enter__(self) -> LineWriter:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.finish()

    def finish(self) -> None:
        """Stop writing."""
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        with self._path.open("a") as file:
            while not self._stop.wait(0.02):
                file.write("".join(f"{self.lines + n}\n" for n in range(10)))
                file.flush()
                self.lines += 10


def test_each_line_arrives_once(broker: Service, tmp_path: Path) -> None:
    create(broker.address, _TOPIC, partitions=1)
    source, sink = tmp_path / "source.txt", tmp_path / "sink.txt"
    [port] = free_ports(1)
    with (
        Program(_command(broker.address, tmp_path, port), tmp_path / "worker.log") as worker,
        Follower(broker.address, _TOPIC, worker) as arrived,
        LineWriter(source) as writer,
    ):
        worker.start()
        for name, file in (("source", source), ("sink", sink)):
            config = {**_CONNECTORS[name], "file": str(file), "tasks.max": "1"}
            until(partial(_put, port, name, config), PATIENCE_SECONDS)
        for _ in range(2):
            arrived.wait_for(arrived.count + _PROGRESS)
            worker.kill()
            worker.start()
        writer.finish()
        arrived.wait_for(writer.lines)
        expected = [b"%d" % n for n in range(writer.lines)]
        found = [message.value() or b"" for message in messages(broker.address, _TOPIC)]
        assert repeated_or_missing(found, expected) == ""
        assert found == expected
        # a sink may repeat what it wrote before it was killed
        until(lambda: {line.encode() for line in _lines(sink)} == set(expected), PATIENCE_SECONDS)


def _command(address: str, folder: Path, port: int) -> list[str]:
    plugins = folder / "plugins"  # none but those of the class path
    plugins.mkdir()
    settings = {
        **_WORKER,
        "bootstrap.servers": address,
        "listeners": f"http://127.0.0.1:{port}",
        "plugin.path": str(plugins),
    }
    properties = folder / "worker.properties"
    properties.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
    return apache_kafka.java("org.apache.kafka.connect.cli.ConnectDistributed", str(properties))


def _put(port: int, name: str, config: dict[str, str]) -> bool:
    """Create a connector; False while the worker starts."""
    request = urllib.request.Request(
        f"http://127.0.0.1:{port}/connectors/{name}/config",
        json.dumps(config).encode(),
        {"Content-Type": "application/json"},
        method="PUT",
    )
    try:
        with urllib.request.urlopen(request, timeout=60):
            return True
    except urllib.error.HTTPError as error:
        if error.code not in _NOT_YET:
            raise
        return False
    except OSError:
        return False


def _lines(path: Path) -> list[str]:
    return path.read_text().splitlines() if path.exists() else []
