"""Both sides guarded, each by its own certificates and users."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from headworks._server import child_process
from headworks.errors import UnreachableError
from tests.broker.secure import PASSWORDS, Files, Way
from tests.mirror.messages import SECONDS

pytestmark = pytest.mark.e2e

Mirror = Callable[..., child_process.Service]


def properties(path: Path, way: Way) -> str:
    path.write_text("".join(f"{name}={value}\n" for name, value in way.librdkafka.items()))
    return str(path)


def test_each_side_has_its_own_login(tmp_path: Path, mirror: Mirror) -> None:
    ways = []
    started = []
    for side, user in (("source", "alice"), ("target", "carol")):
        files = Files.make(tmp_path / side)
        listen = ["broker", "start", "--listen", "127.0.0.1:0", "--data-dir", str(files.folder)]
        started.append(child_process.start([*listen, *files.tls_options, *files.user_options]))
        ways.append(Way(files, "SASL_SSL", user=user, password=PASSWORDS[user]))
    source, target = started
    try:
        client: Any = {"bootstrap.servers": source.address, **ways[0].librdkafka}
        admin = AdminClient(client)
        admin.create_topics([NewTopic("t", 1, 1)])["t"].result(SECONDS)
        producer = Producer(client)
        producer.produce("t", b"secret")
        assert producer.flush(SECONDS) == 0
        sides = ["--from", source.address, "--to", target.address, "--topics", "t", "--no-audit"]
        configs = {
            "from_config": properties(tmp_path / "from.properties", ways[0]),
            "to_config": properties(tmp_path / "to.properties", ways[1]),
        }
        running = mirror(*sides, **configs)
        reader = Consumer(
            {
                "bootstrap.servers": target.address,
                **ways[1].librdkafka,
                "group.id": "reader",
                "auto.offset.reset": "earliest",
                "topic.metadata.refresh.interval.ms": 300,
            }
        )
        reader.subscribe(["t"])
        polled = (reader.poll(1.0) for _ in range(int(SECONDS)))
        found = next(m for m in polled if m is not None and not m.error())
        reader.close()
        assert found.value() == b"secret"
        assert running.stop() == 0
        with pytest.raises(UnreachableError, match="no broker answers at"):
            mirror(*sides, from_config=configs["from_config"], to_config=configs["from_config"])
    finally:
        for broker in started:
            broker.stop()
