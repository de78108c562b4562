"""A consumer without a broker or without its topic: it says so, raises in the end, and closes."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from consumer_sdk import Consumer, Partition, _reachability
from headworks._cli.stack.ports import free_ports
from headworks._server import child_process
from headworks._server.child_process import Service
from headworks.errors import UnreachableError, UsageError
from tests.damage import produce_batches
from tests.waiting import until

pytestmark = pytest.mark.e2e

Dicts = Consumer[dict[str, Any]]


def lines(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [r.getMessage() for r in caplog.records if r.name == "headworks.consumer"]


def reading(bootstrap: str, **options: Any) -> Dicts:
    options = {"topics": ["silent"], "group": "silent", **options}
    return Consumer(bootstrap=bootstrap, registry="http://127.0.0.1:1", **options)


def test_a_broker_that_was_never_there(caplog: pytest.LogCaptureFixture) -> None:
    address = f"127.0.0.1:{free_ports(1)[0]}"
    consumer = reading(address, unreachable_after=1)
    for _ in range(2):  # whoever goes on is told again
        with pytest.raises(UnreachableError, match=f"no broker at {address} has answered") as found:
            until(lambda: consumer.poll(0.2))
        assert "Connection refused" in str(found.value)
    consumer.close(timeout=0.5)
    consumer.close()
    told = [line for line in lines(caplog) if "answers" in line]
    assert len(told) == 1, "once a minute"
    assert address in told[0]
    assert "Connection refused" in told[0]


def test_a_user_s_own_callback_is_called_as_well() -> None:
    seen: list[Any] = []
    address = f"127.0.0.1:{free_ports(1)[0]}"
    consumer = reading(address, config={"error_cb": seen.append})
    until(lambda: consumer.poll(0.2) or seen)
    consumer.close(timeout=0.5)


def test_a_broker_that_goes_away_while_it_is_read(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    arguments = ["broker", "start", "--listen", "127.0.0.1:0", "--data-dir", str(tmp_path)]
    with child_process.start(arguments) as broker:
        produce_batches(broker.address, "silent", [b"x"])
        consumer = reading(broker.address, unreachable_after=1, on_poison="skip")
        until(lambda: consumer.poll(0.2) or consumer.skipped)
    with pytest.raises(UnreachableError, match=f"no broker at {broker.address} has answered"):
        until(lambda: consumer.poll(0.2))
    consumer.close(timeout=0.5)
    assert any(f"no broker at {broker.address} answers" in line for line in lines(caplog))


def test_a_topic_that_does_not_exist(broker: Service, caplog: pytest.LogCaptureFixture) -> None:
    with reading(broker.address, topics=["nobody-made-it"]) as consumer:
        until(lambda: consumer.poll(0.2) or lines(caplog))
    assert lines(caplog) == ["topic 'nobody-made-it' does not exist: waiting until it is created"]


def test_a_member_that_gets_no_partition(
    broker: Service, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A broker without the consumer protocol looks the same: librdkafka shows no error."""
    monkeypatch.setattr(_reachability, "_ASSIGNMENT_SECONDS", 0.2)
    config = {"group.protocol": "consumer"}
    topic = "one-partition"
    admin = AdminClient({"bootstrap.servers": broker.address})
    admin.create_topics([NewTopic(topic, 1, 1)])[topic].result(60)
    with reading(broker.address, topics=[topic], group="full", config=config) as first:
        until(lambda: first.poll(0.1) or first.assignment)
        caplog.clear()
        with reading(broker.address, topics=[topic], group="full", config=config) as second:
            until(lambda: second.poll(0.1) or lines(caplog))
            [told] = lines(caplog)
            assert "no partition" in told
            assert "remove group.protocol" in told


@pytest.mark.parametrize(
    "config", [{"group.protocol": "share"}, {"share.acknowledgement.mode": "explicit"}]
)
def test_a_share_group_is_refused(config: dict[str, str]) -> None:
    with pytest.raises(UsageError, match="asks for a share group") as found:
        reading("127.0.0.1:1", config=config)
    assert next(iter(config)) in str(found.value)


def test_callbacks_of_the_close_run_in_the_thread_that_closes(broker: Service) -> None:
    produce_batches(broker.address, "threads", [b"x"])
    seen: list[tuple[threading.Thread, list[Partition]]] = []

    def revoked(partitions: list[Partition]) -> None:
        seen.append((threading.current_thread(), partitions))

    with reading(
        broker.address, topics=["threads"], on_revoked=revoked, on_poison="skip"
    ) as consumer:
        until(lambda: consumer.poll(0.2) or consumer.skipped)
    assert seen == [(threading.current_thread(), [Partition("threads", 0)])]
