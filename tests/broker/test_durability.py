"""Durability: stops, crashes, torn tails, damage, full folders, and refusals at the start."""

from __future__ import annotations

import asyncio
import json
import os
import re
import resource
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

import psutil
import pytest
import urllib3
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from headworks._broker.server.server import BrokerServer, ServerConfig
from headworks._kafka.protocol.apis import ApiKey
from headworks._server import child_process
from headworks.errors import UsageError
from tests.broker.build import batch
from tests.broker.clients import CONSUMERS, DEADLINE, PRODUCERS, Message, eventually
from tests.broker.conftest import kept_address, start_broker
from tests.broker.wire import Wire, fetch, fetched, produce, produced
from tests.command_line import run_command
from tests.small_disk import small_disk
from tests.sqlite_store import execute

pytestmark = pytest.mark.e2e

HOURS = "10000000"  # milliseconds
# a soak test raises it; the time goes into restarts
KILLS = int(os.environ.get("HEADWORKS_TEST_KILLS", "3"))


def create(address: str, *topics: str) -> None:
    admin = AdminClient({"bootstrap.servers": address})
    for future in admin.create_topics([NewTopic(topic, 1, 1) for topic in topics]).values():
        future.result(DEADLINE)


def messages(count: int) -> list[Message]:
    return [Message(b"%d" % n, b"value %d" % n) for n in range(count)]


def test_a_restart_keeps_messages_topics_offsets_and_producers(tmp_path: Path) -> None:
    with start_broker(tmp_path) as process:
        create(process.address, "kept")
        PRODUCERS["confluent-kafka"](process.address, "kept", messages(50), "none")
        member = Consumer({"bootstrap.servers": process.address, "group.id": "g"})
        member.commit(offsets=[TopicPartition("kept", 0, 31)], asynchronous=False)
        member.close()
        cluster = AdminClient({"bootstrap.servers": process.address}).list_topics().cluster_id
        assert process.stop() == 0
    with start_broker(tmp_path) as process:
        assert CONSUMERS["aiokafka"](process.address, "kept", 50) == messages(50)
        member = Consumer({"bootstrap.servers": process.address, "group.id": "g"})
        [at] = member.committed([TopicPartition("kept", 0)], timeout=DEADLINE)
        assert at.offset == 31
        member.close()
        again = AdminClient({"bootstrap.servers": process.address}).list_topics().cluster_id
        assert again == cluster


def test_a_producer_goes_on_over_a_restart(tmp_path: Path) -> None:
    listen = kept_address()
    with start_broker(tmp_path, listen=listen) as process:
        create(process.address, "on")
        failures: list[KafkaError] = []
        producer = Producer({"bootstrap.servers": process.address, "enable.idempotence": True})

        def send(first: int) -> None:
            for n in range(first, first + 100):
                producer.produce(
                    "on", b"%d" % n, on_delivery=lambda e, _: failures.append(e) if e else None
                )

        send(0)
        assert producer.flush(DEADLINE) == 0
        assert process.stop() == 0
        send(100)
    with start_broker(tmp_path, listen=listen) as process:
        assert producer.flush(DEADLINE) == 0
        assert failures == []
        found = CONSUMERS["confluent-kafka"](process.address, "on", 200)
        assert [m.value for m in found] == [b"%d" % n for n in range(200)]


def test_nothing_acknowledged_is_lost_when_the_broker_is_killed(tmp_path: Path) -> None:
    """Kill -9 under acks=all load, again and again, while a producer counts on its own."""
    listen = kept_address()
    process = start_broker(tmp_path, listen=listen)
    create(process.address, "load")
    acknowledged: list[int] = []
    stop = threading.Event()

    def load() -> None:
        producer = Producer(
            {
                "bootstrap.servers": listen,
                "enable.idempotence": True,
                "linger.ms": 1,
                "batch.num.messages": 50,
                "reconnect.backoff.max.ms": 200,
            }
        )

        def done(error: KafkaError | None, message: Any) -> None:
            if error is None:
                acknowledged.append(int(message.value()))

        number = 0
        while not stop.is_set():
            if len(producer) < 5000:
                producer.produce("load", b"%d" % number, partition=0, on_delivery=done)
                number += 1
            else:
                producer.poll(0.01)
            if number % 100 == 0:
                producer.poll(0)
        assert producer.flush(DEADLINE) == 0

    thread = threading.Thread(target=load)
    thread.start()
    try:
        for _ in range(KILLS):
            goal = len(acknowledged) + 2000
            eventually(lambda goal=goal: len(acknowledged) >= goal)  # type: ignore[misc]
            process.kill()
            process = start_broker(tmp_path, listen=listen)
    finally:
        stop.set()
        thread.join()
    assert len(acknowledged) > 2000 * KILLS
    found = CONSUMERS["confluent-kafka"](process.address, "load", len(acknowledged))
    values = [int(m.value or b"") for m in found]
    process.stop()
    assert values == sorted(set(values)), "in order and without duplicates"
    assert set(acknowledged) <= set(values), "nothing that was acknowledged is lost"


def test_a_torn_tail_is_cut_and_said_and_counted(tmp_path: Path) -> None:
    with start_broker(tmp_path) as process:
        create(process.address, "torn")
        PRODUCERS["confluent-kafka"](process.address, "torn", messages(10), "none")
    [path] = (tmp_path / "broker/logs/torn-0").glob("*.log")
    whole = path.read_bytes()
    path.write_bytes(whole + bytes(batch(2, at=10))[:-3])
    with start_broker(tmp_path, "--metrics", "127.0.0.1:0") as process:
        assert len(CONSUMERS["confluent-kafka"](process.address, "torn", 10)) == 10
        log = process.words()
        assert "torn-0: cut" in log
        page = re.search(r"http://127.0.0.1:\d+/metrics", log)
        assert page is not None
        text = urllib3.request("GET", page.group(0)).data.decode()
        assert f"headworks_broker_recovery_cut_bytes_total {float(len(batch(2)) - 3)}" in text
    assert path.read_bytes() == whole


def fill(address: str, topic: str, acks: int = -1) -> list[int]:
    """Produce until there is no room; the offsets that were acknowledged."""
    offsets: list[int] = []
    with Wire(address) as wire:
        for _ in range(2000):
            wire.send(ApiKey.PRODUCE, 7, produce(topic, 0, bytes(batch(3, size=3000)), acks=acks))
            error, offset = produced(wire.receive()[1], topic)
            if error:
                assert error == 56
                return offsets
            offsets.append(offset)
    raise AssertionError("the disk never filled")


def check_nothing_is_torn(folder: Path, address: str, topic: str, acknowledged: list[int]) -> None:
    assert acknowledged == list(range(0, 3 * len(acknowledged), 3)), "without a gap"
    done = run_command("log", "dump", str(folder / f"broker/logs/{topic}-0"))
    assert done.returncode == 0, done.stderr
    assert len(CONSUMERS["confluent-kafka"](address, topic, 3 * len(acknowledged))) == 3 * len(
        acknowledged
    )


@pytest.mark.parametrize("acks", [1, -1])
def test_a_full_disk_refuses_and_goes_on_when_there_is_room(tmp_path: Path, acks: int) -> None:
    with small_disk(tmp_path) as resize, start_broker(tmp_path) as process:
        create(process.address, "full")
        offsets = fill(process.address, "full", acks)
        assert len(offsets) > 10
        for _ in range(3):
            assert len(fill(process.address, "full", acks)) <= 1, "it stays full"
        check_offsets = 3 * len(offsets)
        resize(3)
        with Wire(process.address) as wire:
            wire.send(ApiKey.PRODUCE, 7, produce("full", 0, bytes(batch(3)), acks=-1))
            error, offset = produced(wire.receive()[1], "full")
        assert error == 0
        assert offset >= check_offsets
        found = CONSUMERS["confluent-kafka"](process.address, "full", offset + 3)
        assert len(found) == offset + 3
        done = run_command("log", "dump", str(tmp_path / "broker/logs/full-0"))
        assert done.returncode == 0, done.stderr
        assert process.stop() == 0


def test_files_that_may_not_grow_are_a_full_disk_too(tmp_path: Path) -> None:
    """The kernel ends writes at a limit in the middle of a batch: what was written of it goes."""
    with start_broker(tmp_path) as process:
        create(process.address, "limited")
        pid = process.process.pid
        before = resource.prlimit(pid, resource.RLIMIT_FSIZE)
        resource.prlimit(pid, resource.RLIMIT_FSIZE, (200_001, before[1]))
        offsets = fill(process.address, "limited")
        assert fill(process.address, "limited") == []
        check_nothing_is_torn(tmp_path, process.address, "limited", offsets)
        resource.prlimit(pid, resource.RLIMIT_FSIZE, before)
        with Wire(process.address) as wire:
            wire.send(ApiKey.PRODUCE, 7, produce("limited", 0, bytes(batch(3)), acks=-1))
            assert produced(wire.receive()[1], "limited") == (0, 3 * len(offsets))
        offsets.append(3 * len(offsets))
        check_nothing_is_torn(tmp_path, process.address, "limited", offsets)
        process.kill()
    with start_broker(tmp_path) as process:
        check_nothing_is_torn(tmp_path, process.address, "limited", offsets)


def test_retention_removes_segments_under_readers_and_a_late_fetch_is_out_of_range(
    tmp_path: Path,
) -> None:
    options = ("--segment-bytes", "20000", "--retention-bytes", "40000")
    with start_broker(tmp_path, *options, "--retention-check-seconds", "0.2") as process:
        create(process.address, "aging")
        with Wire(process.address) as wire:
            for _ in range(100):
                wire.send(
                    ApiKey.PRODUCE, 7, produce("aging", 0, bytes(batch(1, size=3000)), acks=-1)
                )
                wire.receive()
            deadline = time.monotonic() + DEADLINE
            while True:
                wire.send(ApiKey.FETCH, 11, fetch("aging", 0, 0))
                error, _, records = fetched(wire.receive()[1])
                if error:
                    break
                assert records, "what is there is served"
                assert time.monotonic() < deadline
        assert error == 1
        consumer = Consumer({"bootstrap.servers": process.address, "group.id": "late"})

        def reads_from_the_start() -> bool:
            start, end = consumer.get_watermark_offsets(
                TopicPartition("aging", 0), timeout=DEADLINE
            )
            assert 0 < start < end == 100
            with Wire(process.address) as again:
                again.send(ApiKey.FETCH, 11, fetch("aging", 0, start))
                return fetched(again.receive()[1])[0] == 0

        eventually(reads_from_the_start)
        consumer.close()


def test_a_damaged_partition_is_refused_and_the_others_are_served(tmp_path: Path) -> None:
    with start_broker(tmp_path, "--segment-bytes", "1024") as process:
        create(process.address, "bad", "good")
        for topic in ("bad", "good"):
            with Wire(process.address) as wire:
                for _ in range(20):
                    wire.send(
                        ApiKey.PRODUCE, 7, produce(topic, 0, bytes(batch(1, size=200)), acks=-1)
                    )
                    wire.receive()
    segments = sorted((tmp_path / "broker/logs/bad-0").glob("*.log"))
    segments[1].write_bytes(segments[1].read_bytes()[:-5])
    with start_broker(tmp_path) as process:
        with Wire(process.address) as wire:
            wire.send(ApiKey.FETCH, 11, fetch("good", 0, 0))
            assert fetched(wire.receive()[1])[0] == 0
            wire.send(ApiKey.FETCH, 11, fetch("bad", 0, 0))
            assert fetched(wire.receive()[1])[0] == 56
            wire.send(ApiKey.PRODUCE, 7, produce("bad", 0, bytes(batch())))
            assert produced(wire.receive()[1], "bad")[0] == 56
        topics = (
            AdminClient({"bootstrap.servers": process.address}).list_topics(timeout=DEADLINE).topics
        )
        assert topics["bad"].partitions[0].error is not None
        assert topics["good"].partitions[0].error is None
        assert "bad-0 is not served" in process.words()
        shown = run_command("topic", "describe", "bad", "--bootstrap", process.address)
        assert shown.stdout.split()[-5:] == ["0", *["refused"] * 4]
        assert "does not serve bad[0]: its log says why" in shown.stderr
    done = run_command("log", "dump", str(segments[0].parent), "--format", "json")
    assert done.returncode == 1
    damage = [json.loads(line) for line in done.stdout.splitlines() if "damage" in line]
    assert damage[0]["segment"] == segments[1].name
    assert "fix:" in done.stderr


def headworks(*arguments: str, **env: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-P", "-m", "headworks._cli", *arguments],
        capture_output=True,
        text=True,
        timeout=2 * DEADLINE,
        env=os.environ | env,
        check=False,
    )


def test_log_dump_shows_batches_and_records(tmp_path: Path) -> None:
    with start_broker(tmp_path) as process:
        create(process.address, "shown")
        for codec in ("none", "gzip"):
            PRODUCERS["aiokafka"](process.address, "shown", messages(2), codec)
    folder = tmp_path / "broker/logs/shown-0"
    text = run_command("log", "dump", str(folder), "--records")
    assert text.returncode == 0, text.stderr
    assert "offsets 0..1" in text.stdout
    assert "key=b'1' value=b'value 1'" in text.stdout
    done = run_command(
        "log", "dump", str(next(folder.glob("*.log"))), "--records", "--format", "json"
    )
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    assert [line["codec"] for line in lines] == ["none", "gzip"]
    assert lines[1]["content"][1]["value"] == "value 1"
    missing = run_command("log", "dump", str(tmp_path))
    assert missing.returncode == 2
    assert "neither a segment" in missing.stderr


def test_two_brokers_do_not_share_a_folder_or_a_port(tmp_path: Path) -> None:
    with start_broker(tmp_path) as process:
        with pytest.raises(UsageError, match="in use by another broker") as caught:
            start_broker(tmp_path)
        assert str(process.process.pid) in str(caught.value)
        with pytest.raises(UsageError, match="cannot listen on") as caught:
            child_process.start(
                ["broker", "start", "--listen", process.address, "--data-dir", str(tmp_path / "b")]
            )
        assert "--listen" in str(caught.value)


def test_a_port_that_another_process_takes_during_the_start_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.socket() as other:
        other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        other.bind(("127.0.0.1", 0))
        host, port = other.getsockname()
        server = BrokerServer(ServerConfig(tmp_path, host, port))
        opened = server._open

        async def opened_too_late() -> None:
            await opened()
            other.listen()

        monkeypatch.setattr(server, "_open", opened_too_late)
        with pytest.raises(UsageError, match=f"cannot listen on {host}:{port}"):
            asyncio.run(server.start())
    with start_broker(tmp_path):  # nothing holds the folder
        pass


@pytest.mark.parametrize(
    ("listen", "words"),
    [
        ("192.0.2.1:9092", "--insecure"),
        ("0.0.0.0:9092", "cannot connect to it"),
        ("example.org:9092", "address of this machine"),
        ("127.0.0.1", "HOST:PORT"),
        ("127.0.0.1:99999", "HOST:PORT"),
    ],
)
def test_addresses_that_it_does_not_listen_on(tmp_path: Path, listen: str, words: str) -> None:
    done = headworks("broker", "start", "--listen", listen, "--data-dir", str(tmp_path))
    assert done.returncode == 2
    assert words in done.stderr
    assert "Traceback" not in done.stderr


def test_options_that_are_wrong_are_refused(tmp_path: Path) -> None:
    done = run_command("broker", "start", "--format", "xml", "--data-dir", str(tmp_path))
    assert done.returncode == 2
    assert "'xml' is not one of 'text', 'json'" in done.stderr


def test_it_says_where_it_serves_and_stops_on_a_signal(tmp_path: Path) -> None:
    process = subprocess.Popen(
        [sys.executable, "-P", "-m", "headworks._cli", "broker", "start", "--listen", "[::1]:0"],
        env=os.environ | {"HEADWORKS_DATA_DIR": str(tmp_path)},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    line = process.stdout.readline()
    assert line.startswith("broker serving on [::1]:")
    process.send_signal(signal.SIGINT)
    output, errors = process.communicate(timeout=DEADLINE)
    assert (process.returncode, output) == (0, "")
    assert "Traceback" not in errors
    assert (tmp_path / "broker" / "coordination.sqlite").exists()


def test_consumers_see_flushed_records_only_and_a_waiting_fetch_flushes_them(
    tmp_path: Path,
) -> None:
    with start_broker(tmp_path, "--flush-ms", HOURS) as process:
        create(process.address, "last")
        with Wire(process.address) as wire:
            wire.send(ApiKey.PRODUCE, 7, produce("last", 0, bytes(batch(3)), acks=1))
            assert produced(wire.receive()[1], "last") == (0, 0)
            wire.send(ApiKey.FETCH, 11, fetch("last", 0, 0, wait_ms=0))
            assert fetched(wire.receive()[1]) == (0, 0, b""), "not on disk, so not seen"
            wire.send(ApiKey.FETCH, 11, fetch("last", 0, 0, wait_ms=int(HOURS)))
            # which comes before `wire` gives up: a reader that waits does not wait for the timer
            assert fetched(wire.receive()[1])[1] == 3
            wire.send(ApiKey.PRODUCE, 7, produce("last", 0, bytes(batch(3)), acks=1))
            wire.receive()
    with start_broker(tmp_path) as process, Wire(process.address) as wire:
        wire.send(ApiKey.FETCH, 11, fetch("last", 0, 0))
        assert fetched(wire.receive()[1])[1] == 6, "stopping flushes"


def test_unflushed_messages_are_seen_if_asked_for(tmp_path: Path) -> None:
    with start_broker(tmp_path, "--flush-ms", HOURS, "--show-unflushed") as process:
        create(process.address, "soon")
        with Wire(process.address) as wire:
            wire.send(ApiKey.PRODUCE, 7, produce("soon", 0, bytes(batch(3)), acks=1))
            wire.receive()
            wire.send(ApiKey.FETCH, 11, fetch("soon", 0, 0))
            assert fetched(wire.receive()[1])[1] == 3


def test_the_log_says_why_a_topic_is_not_created_by_being_used(tmp_path: Path) -> None:
    """The client hears only that there is no such topic: the protocol has no better word."""

    def use(wire: Wire, name: bytes) -> None:
        wire.send(ApiKey.METADATA, 4, b"\0\0\0\1\0\1" + name + b"\1")
        wire.receive()

    with start_broker(tmp_path, "--max-partitions", "4") as process:
        with Wire(process.address) as wire:
            for name in (b"t", b"x", b"x"):
                use(wire, name)
        words = process.words()
    assert words.count("cannot be created by being used: topic 'x': 4 partitions more") == 1
    assert "fix: delete topics that nobody uses" in words
    assert "larger --max-partitions" in words


def test_connections_are_limited(tmp_path: Path) -> None:
    with start_broker(tmp_path, "--max-connections", "2") as process:
        with Wire(process.address) as one, Wire(process.address) as two:
            assert (
                one.ask(ApiKey.API_VERSIONS, 0).error_code
                == two.ask(ApiKey.API_VERSIONS, 0).error_code
                == 0
            )
            with Wire(process.address) as three:
                assert three.closed()
        deadline = time.monotonic() + DEADLINE
        while not _answers(process.address):  # until it has seen the others go
            assert time.monotonic() < deadline


def test_connections_from_one_address_are_limited(tmp_path: Path) -> None:
    with start_broker(tmp_path, "--max-connections-per-address", "2") as process:
        with Wire(process.address) as one, Wire(process.address) as two:
            assert (
                one.ask(ApiKey.API_VERSIONS, 0).error_code
                == two.ask(ApiKey.API_VERSIONS, 0).error_code
                == 0
            )
            with Wire(process.address) as three:
                assert three.closed()
            with Wire(process.address, source="127.0.0.2") as other:
                assert other.ask(ApiKey.API_VERSIONS, 0).error_code == 0
        eventually(lambda: _answers(process.address))  # when it has seen the others go
        words = process.words()
    assert "refusing 127.0.0.1:" in words
    assert "2 connections from 127.0.0.1 are open" in words


def _answers(address: str) -> bool:
    try:
        with Wire(address) as wire:
            return bool(wire.ask(ApiKey.API_VERSIONS, 0).error_code == 0)
    except (EOFError, OSError):
        return False


def test_a_deletion_that_a_crash_interrupted_is_finished(tmp_path: Path) -> None:
    with start_broker(tmp_path) as process:
        create(process.address, "half", "whole")
        PRODUCERS["confluent-kafka"](process.address, "half", messages(3), "none")
    store = tmp_path / "broker/coordination.sqlite"
    execute(store, "UPDATE topics SET deleting = 1 WHERE name = 'half'")
    with start_broker(tmp_path) as process:
        topics = (
            AdminClient({"bootstrap.servers": process.address}).list_topics(timeout=DEADLINE).topics
        )
        assert set(topics) == {"whole"}
        assert not (tmp_path / "broker/logs/half-0").exists()


def test_a_broken_store_is_named(tmp_path: Path) -> None:
    (tmp_path / "broker").mkdir()
    (tmp_path / "broker/coordination.sqlite").write_bytes(b"not a database at all" * 100)
    done = headworks("broker", "start", "--listen", "127.0.0.1:0", "--data-dir", str(tmp_path))
    assert done.returncode == 1
    assert "coordination.sqlite" in done.stderr
    assert "Traceback" not in done.stderr


def test_silent_clients_are_dropped_and_waiting_ones_are_not(tmp_path: Path) -> None:
    with start_broker(tmp_path, "--idle-seconds", "0.5") as process:
        create(process.address, "quiet")

        def waited() -> bool:
            """Not if it was dropped because this process stood still before it asked."""
            with Wire(process.address) as silent, Wire(process.address) as parked:
                parked.send(ApiKey.FETCH, 11, fetch("quiet", 0, 0, wait_ms=1500))
                silent.socket.sendall(b"\0\0\0\x20half a")
                assert silent.closed()
                try:
                    return fetched(parked.receive()[1]) == (0, 0, b"")
                except (EOFError, OSError):
                    return False

        eventually(waited)


def test_metrics(tmp_path: Path) -> None:
    with start_broker(tmp_path, "--metrics", "127.0.0.1:0") as process:
        create(process.address, "counted")
        PRODUCERS["confluent-kafka"](process.address, "counted", messages(7), "none")
        found = re.search(r"http://127.0.0.1:(\d+)/metrics", process.words())
        assert found is not None
        text = urllib3.request("GET", found.group(0)).data.decode()
        taken = headworks(
            *("broker", "start", "--listen", "127.0.0.1:0", "--data-dir", str(tmp_path / "b")),
            *("--metrics", f"127.0.0.1:{found.group(1)}"),
        )
    assert 'headworks_broker_log_visible{partition="0",topic="counted"} 7.0' in text
    assert 'headworks_broker_requests_total{api="produce"}' in text
    assert 'headworks_broker_log_writable{partition="0",topic="counted"} 1.0' in text
    assert taken.returncode == 2
    assert "cannot serve metrics" in taken.stderr


def _producers(process: child_process.Service) -> float:
    """How many idempotent producers are remembered, as the metrics say."""
    found = re.search(r"http://127.0.0.1:\d+/metrics", process.words())
    assert found is not None
    text = urllib3.request("GET", found.group(0)).data.decode()
    return float(re.findall(r"^headworks_broker_producers (.*)$", text, re.MULTILINE)[0])


def test_producers_are_counted_bounded_and_forgotten(tmp_path: Path) -> None:
    metrics = ("--metrics", "127.0.0.1:0")
    with start_broker(tmp_path, "--max-producers", "2", *metrics) as process:
        create(process.address, "one", "two")
        for topic, known in (("one", 1), ("two", 2), ("one", 2)):
            PRODUCERS["confluent-kafka"](process.address, topic, messages(2), "none")
            assert _producers(process) == known
        admin = AdminClient({"bootstrap.servers": process.address})
        admin.delete_topics(["one"])["one"].result(DEADLINE)
        assert _producers(process) == 1
    often = ("--retention-check-seconds", "0.1", "--producer-id-expiration-ms", "1")
    with start_broker(tmp_path, *metrics) as process:
        assert _producers(process) == 1, "those of the log are known again"
    with start_broker(tmp_path, *often, *metrics) as process:
        eventually(lambda: _producers(process) == 0)


def test_starting_is_quick(tmp_path: Path) -> None:
    with start_broker(tmp_path) as process:
        used = psutil.Process(process.process.pid).cpu_times()
        assert used.user + used.system < 3.0, "of its own time, which others do not lengthen"
