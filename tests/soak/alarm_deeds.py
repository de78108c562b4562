"""How the servers of `alarms` are hurt: each deed is the cause of the rules named beside it there.

Rule: a deed returns when the trouble is caused, and no deed waits for an alert.
"""

from __future__ import annotations

import base64
import os
import resource
import signal
import socket
import sqlite3
import struct
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from threading import Thread

import confluent_kafka
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._config import AlterConfigOpType, ConfigEntry, ConfigResource
from confluent_kafka.cimpl import NewTopic

from hadoop_loader._fetch.kafka_log import KafkaLog
from hadoop_loader._operations.load import Load
from headworks._audit_counting import AUDIT_TOPIC
from headworks._kafka.client_properties import client_properties
from headworks.errors import HeadworksError
from headworks.registry_client import RegistryClient
from tests.broker.cluster import cluster
from tests.interop.in_place import log_folder
from tests.soak.alarm_stand import (
    GOVERNED,
    MAX_CONNECTIONS,
    ORDERS,
    PAGEVIEWS,
    READINGS,
    TARGET_MAX_BYTES,
    Stand,
    other_schema,
)
from tests.soak.fire_loader import loader_context
from tests.soak.live_traffic import TOPICS
from tests.soak.process import PATIENCE
from tests.waiting import until

_ROTTEN = "shop.rotten"  # a topic with a damaged batch


def quarantine(stand: Stand) -> None:
    stand.write(ORDERS, b"\0poison")
    stand.load()


def load_late(stand: Stand) -> None:
    stand.send(ORDERS, 50, minutes_ago=90)
    stand.load()


def load_what_nobody_counts(stand: Stand) -> None:
    stand.write(PAGEVIEWS, *[_pageview(stand, n) for n in range(9)])
    stand.load()


def _pageview(stand: Stand, number: int) -> bytes:
    frame = b"\0" + stand.ids[f"{PAGEVIEWS}-value"].to_bytes(4, "big")
    return frame + bytes([0, 2 * number, 2]) + b"/"  # at, number, and path as Avro


def remove_before_the_load(stand: Stand) -> None:
    stand.send(ORDERS, 60)
    client = confluent_kafka.Consumer({"bootstrap.servers": stand.at["broker"], "group.id": "x"})
    place = confluent_kafka.TopicPartition(ORDERS, 0)
    _, end = client.get_watermark_offsets(place, timeout=PATIENCE)
    client.close()
    admin = AdminClient({"bootstrap.servers": stand.at["broker"]})
    found = admin.delete_records([confluent_kafka.TopicPartition(ORDERS, 0, end)])
    for one in found.values():
        one.result(PATIENCE)
    stand.load()


def refuse_connections(stand: Stand) -> None:
    host, port = stand.at["broker"].split(":")
    for _ in range(3):
        some = []
        for _ in range(2 * MAX_CONNECTIONS):
            with suppress(OSError):
                some.append(socket.create_connection((host, int(port)), timeout=5))
        time.sleep(2)
        for one in some:
            one.close()


def fill_the_disk(stand: Stand) -> None:
    producer = confluent_kafka.Producer(
        {"bootstrap.servers": stand.at["broker"], "message.timeout.ms": 8_000}
    )
    for _ in range(20):
        producer.produce(READINGS, b"for a full disk")
    producer.flush(PATIENCE)


def flush_slowly(stand: Stand) -> None:
    for _ in range(4):
        stand.write(READINGS, b"slowly")


def fall_behind(stand: Stand) -> None:
    stand.write(READINGS, b"read")  # the topic exists from now on
    place = confluent_kafka.TopicPartition(READINGS, 0, 0)
    client = confluent_kafka.Consumer({"bootstrap.servers": stand.at["broker"], "group.id": "slow"})
    client.commit(offsets=[place], asynchronous=False)
    client.close()
    stand.write(READINGS, *[b"unread"] * 1_500)
    for _ in range(20):
        time.sleep(1)
        stand.write(READINGS, *[b"unread"] * 50)


def lock_the_registrys_store(stand: Stand) -> None:
    client = RegistryClient(stand.registry_url, timeout=PATIENCE, attempts=1)
    with locked(stand.folder / "registry.db"):
        for number in range(2):
            with suppress(HeadworksError):
                client.register(f"locked-{number}-value", TOPICS[READINGS])


def slow_the_registry(stand: Stand) -> None:
    client = RegistryClient(stand.registry_url, timeout=PATIENCE)
    for number in range(4):
        with locked(stand.folder / "registry.db"):
            asking = Thread(target=client.register, args=(f"slow-{number}-value", TOPICS[READINGS]))
            asking.start()
            time.sleep(2)
        asking.join()


@contextmanager
def locked(file: Path) -> Iterator[None]:
    """Keep everybody else from writing to an SQLite file."""
    with closing(sqlite3.connect(file, isolation_level=None, timeout=PATIENCE)) as other:
        other.execute("BEGIN IMMEDIATE")
        yield


def load_and_be_scraped(stand: Stand) -> None:
    stand.load()
    time.sleep(3)


def kill_the_registry(stand: Stand) -> None:
    stand.registry.kill()
    for _ in range(5):
        stand.load()
        time.sleep(2)


def tear_the_log(stand: Stand) -> None:
    if stand.broker.process.poll() is None:
        stand.broker.kill()
    folder = log_folder(stand.folder / "broker", READINGS)
    newest = max(folder.glob("*.log"))
    with newest.open("ab") as log:
        log.write(bytes(100))
    stand.broker = stand.start_broker()


def damage_a_batch(stand: Stand) -> None:
    stand.send(_ROTTEN, 3)
    stand.load()
    stand.wait_for(f'headworks_loader_topic_damaged{{topic="{_ROTTEN}"}} == 0')
    stand.send(_ROTTEN, 3)
    _flip_last_bit(max(log_folder(stand.folder / "broker", _ROTTEN).glob("*.log")))
    stand.load()


def skip_the_damaged_batch(stand: Stand) -> None:
    stand.load(skip_damaged=True)


def refuse_a_topic(stand: Stand) -> None:
    topic = "shop.Orders"  # its table would have the name of another one
    number = stand.register(topic, other_schema(topic))
    stand.write(topic, b"\0" + number.to_bytes(4, "big") + b"\0\2")
    stand.load()


def lose_a_leader(stand: Stand) -> None:
    with cluster(stand.folder / "cluster", 2) as brokers:
        client = client_properties(brokers.bootstrap) | {"log_level": 0}
        names = [ORDERS, AUDIT_TOPIC]
        admin = AdminClient(client)
        for made in admin.create_topics([NewTopic(name, 6) for name in names]).values():
            made.result(PATIENCE)
        leaders = brokers.brokers[1].leaders
        until(lambda: -1 not in leaders(ORDERS).values())
        brokers.brokers[2].kill()
        until(lambda: -1 in leaders(ORDERS).values())
        place = stand.folder / "leaderless"
        place.mkdir()
        context = loader_context(brokers.bootstrap, stand.registry_url, place)
        context = replace(context, broker=KafkaLog(client, timeout=8))
        stand.loader_metrics.loaded(Load(context).run())


def cut_the_loader_off(stand: Stand) -> None:
    stand.loader_cable.cut()
    stand.loader_cable.drop()


@contextmanager
def wrong_logins(stand: Stand) -> Iterator[None]:
    """Log in with a wrong password, again and again."""
    wrong: dict[str, str | int | float | bool]
    wrong = {
        "bootstrap.servers": stand.at["guarded broker"],
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "SCRAM-SHA-256",
    }
    wrong |= {"sasl.username": "ada", "sasl.password": "wrong", "log_level": "0"}
    client = AdminClient(wrong | {"reconnect.backoff.ms": 100, "reconnect.backoff.max.ms": 100})
    yield
    del client


def ask_with_a_wrong_password(stand: Stand) -> None:
    said = {"Authorization": "Basic " + base64.b64encode(b"ada:wrong").decode()}
    for _ in range(12):
        asked = urllib.request.Request(
            f"http://{stand.at['guarded registry']}/subjects", headers=said
        )
        with suppress(urllib.error.HTTPError):
            urllib.request.urlopen(asked, timeout=PATIENCE).close()
        time.sleep(0.5)


@contextmanager
def half_requests(stand: Stand) -> Iterator[None]:
    """Hold most of the broker's request memory by requests that never end."""
    host, port = stand.at["broker"].split(":")
    size = 32 << 20  # the largest request
    with ExitStack() as ends:
        for _ in range(15):  # of 16, for which there is memory
            one = socket.create_connection((host, int(port)), timeout=PATIENCE)
            ends.enter_context(one)
            one.sendall(struct.pack(">i", size) + bytes(size * 3 // 4))
        yield


@contextmanager
def few_descriptors(stand: Stand) -> Iterator[None]:
    """Let the registry open hardly more files than it has open."""
    pid = stand.registry.process.pid
    before = resource.prlimit(pid, resource.RLIMIT_NOFILE)
    few = len(os.listdir(f"/proc/{pid}/fd")) + 2
    resource.prlimit(pid, resource.RLIMIT_NOFILE, (few, before[1]))
    try:
        yield
    finally:
        resource.prlimit(pid, resource.RLIMIT_NOFILE, before)


def compact_a_damaged_log(stand: Stand) -> None:
    topic = "shop.compacted"
    admin = AdminClient({"bootstrap.servers": stand.at["broker"]})
    small = {"segment.bytes": "1024", "min.cleanable.dirty.ratio": "0.01"}
    for made in admin.create_topics([NewTopic(topic, 1, config=small)]).values():
        made.result(PATIENCE)
    for _ in range(20):
        stand.write(topic, bytes(200), key=b"one")
    _flip_last_bit(min(log_folder(stand.folder / "broker", topic).glob("*.log")))
    policy = ConfigEntry("cleanup.policy", "compact", incremental_operation=AlterConfigOpType.SET)
    wanted = ConfigResource(ConfigResource.Type.TOPIC, topic, incremental_configs=[policy])
    for done in admin.incremental_alter_configs([wanted]).values():
        done.result(PATIENCE)


def _flip_last_bit(segment: Path) -> None:
    with segment.open("r+b") as log:
        log.seek(-1, os.SEEK_END)
        last = log.read(1)
        log.seek(-1, os.SEEK_END)
        log.write(bytes([last[0] ^ 1]))


# The mirror


@contextmanager
def stopped_target(stand: Stand) -> Iterator[None]:
    """Stop the mirror's target, while messages of 20 minutes ago arrive at the source."""
    stand.wait_for('headworks_mirror_lag_messages{topic="copied.small"} == 0')
    stand.target.signal(signal.SIGSTOP)
    stand.write("copied.small", *[b"more"] * 50)
    try:
        yield
    finally:
        stand.target.signal(signal.SIGCONT)


def send_too_large_a_message(stand: Stand) -> None:
    stand.write("copied.large", b"small")
    stand.wait_for('headworks_mirror_too_large_total{topic="copied.large"} == 0')
    stand.write("copied.large", os.urandom(2 * TARGET_MAX_BYTES))


def mirror_what_the_target_refuses(stand: Stand) -> None:
    stand.write(GOVERNED, b"without a schema")


def make_a_topic_again_and_again(stand: Stand) -> None:
    admin = AdminClient({"bootstrap.servers": stand.at["broker"]})
    sessions = 'headworks_mirror_sessions_total{source!=""}'
    for _ in range(5):
        before = float(stand.ask(sessions)[0]["value"][1])
        admin.delete_topics(["copied.small"])["copied.small"].result(PATIENCE)
        stand.write("copied.small", b"of a new topic")
        until(lambda n=before: float(stand.ask(sessions)[0]["value"][1]) > n)  # type: ignore[misc]
