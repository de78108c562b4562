"""`headworks up --zookeeper embedded`: a cluster of one to play with, that others can join."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

from headworks import service
from tests.decentralised.cluster import eventually


def test_another_broker_joins_what_up_has_started(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "cli", "up", "--data-dir", str(tmp_path / "one")]
    for one in ("--broker", "--registry", "--console"):
        command += [one, "127.0.0.1:0"]
    command += ["--zookeeper", "embedded", "--format", "json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env={**os.environ}) as up:
        try:
            assert up.stdout is not None
            told = json.loads("".join([*iter(up.stdout.readline, "}\n"), "}"]))
            zookeeper = ["--zookeeper", told["zookeeper"], "--broker-id", "2"]
            listen = ["--listen", "127.0.0.1:0", "--data-dir", str(tmp_path / "two")]
            with service.start(["broker", "start", *listen, *zookeeper]) as second:
                from confluent_kafka.admin import AdminClient

                admin = AdminClient({"bootstrap.servers": second.address})

                def knows_both() -> bool:
                    brokers = admin.list_topics(timeout=60).brokers.values()
                    both = {told["broker"], second.address}
                    return {f"{b.host}:{b.port}" for b in brokers} == both

                eventually("what the second knows", knows_both)
        finally:
            up.send_signal(signal.SIGINT)
        assert up.wait(120) == 0
