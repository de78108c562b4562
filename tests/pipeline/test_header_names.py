"""A message with a header whose name is not UTF-8: each reader names it, and goes on if it may."""

from __future__ import annotations

import os
import subprocess
from typing import Any
from unittest.mock import Mock

import pytest

from consumer_sdk import Consumer, PoisonMessageError
from headworks._kafka.headers import message_headers
from headworks._server.child_process import Service
from headworks.errors import CorruptError
from tests.command_line import run_process
from tests.consumer_sdk.zookeeper_group.cluster import encoder
from tests.mirror.messages import Sent, create, produce
from tests.pipeline.test_damaged import Dicts, numbers
from tests.tools import needs

pytestmark = [pytest.mark.e2e, needs("kcat")]


@pytest.fixture(scope="module")
def topic(broker: Service, registry: Service, tmp_path_factory: pytest.TempPathFactory) -> str:
    """Three numbers; the second one's message has such a name."""
    name, path = "odd-headers", tmp_path_factory.mktemp("odd") / "value"
    create(broker.address, name, 1)
    encode = encoder(registry.url, name)
    path.write_bytes(encode(1))
    given = [
        "kcat",
        "-P",
        "-b",
        broker.address,
        "-t",
        name,
        "-p",
        "0",
        "-H",
        os.fsdecode(b"a\xff=1"),
        str(path),
    ]
    produce(broker.address, name, [Sent(0, None, encode(0))])
    subprocess.run(given, check=True, timeout=60)
    produce(broker.address, name, [Sent(0, None, encode(2))])
    return name


def reading(topic: str, broker: Service, registry: Service, group: str, **more: Any) -> Dicts:
    options: dict[str, Any] = {"topics": [topic], "group": group, **more}
    return Consumer(bootstrap=broker.address, registry=registry.url, **options)


def test_a_consumer_takes_it_for_a_bad_message(
    topic: str, broker: Service, registry: Service
) -> None:
    place = f"{topic} partition 0 offset 1: its headers cannot be read"
    with reading(topic, broker, registry, "odd-stop") as stopping:
        assert numbers(stopping, 1) == [0]
        with pytest.raises(PoisonMessageError, match=place):
            numbers(stopping, 1)
    with reading(topic, broker, registry, "odd-skip", on_poison="skip") as skipping:
        assert numbers(skipping, 2) == [0, 2]
    with reading(topic, broker, registry, "odd-dead", on_poison="dead-letter") as dying:
        assert numbers(dying, 2) == [0, 2]
    listed = run_process("dead-letter", "list", topic, "--bootstrap", broker.address)
    assert "its headers cannot be read" in listed.stdout, listed.stderr


def test_the_command_line_names_it(topic: str, broker: Service, registry: Service) -> None:
    at = ("--bootstrap", broker.address, "--registry", registry.url, "--idle", "5")
    consumed = run_process("consume", topic, *at, "--skip-poison")
    assert consumed.stdout.count("number") == 2
    assert "skipped 1 message" in consumed.stderr


@pytest.mark.parametrize(
    "error", [SystemError("a result with an error"), UnicodeDecodeError("utf-8", b"", 0, 1, "")]
)
def test_whichever_error_python_finds_is_told(error: Exception) -> None:
    message = Mock(headers=Mock(side_effect=error))
    with pytest.raises(CorruptError, match="its headers cannot be read"):
        message_headers(message)
