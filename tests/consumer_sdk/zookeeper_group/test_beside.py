"""Handlers beside each other by key, in a group without a coordinator: shared, in order, once."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from consumer_sdk import Consumers, Message
from headworks._server.child_process import Service
from headworks._zookeeper import open_session
from tests.consumer_sdk.test_beside import either, send
from tests.consumer_sdk.zookeeper_group.cluster import declare, register
from tests.consumer_sdk.zookeeper_group.test_group import PARTITIONS, SESSION, Cluster
from tests.ensemble import ensemble
from tests.producer_sdk.events import Site, new_site
from tests.waiting import until

pytestmark = pytest.mark.contract
_USERS = 10
_EACH = 12  # events of each user


@pytest.fixture(scope="module")
def cluster(
    broker: Service, registry: Service, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Cluster]:
    with (
        ensemble(tmp_path_factory.mktemp("zookeeper")) as running,
        open_session(running.address, timeout=SESSION) as session,
    ):
        register(session, broker.address)
        yield Cluster(running, session, broker.address, registry.url)


class Member:
    """Handlers of one member, in a thread of its own."""

    def __init__(self, cluster: Cluster, site: Site, slow: threading.Event, is_async: bool) -> None:
        self.app = Consumers(
            group=site.topic,
            zookeeper=cluster.zookeeper.address,
            membership="zookeeper",
            registry=cluster.registry,
            commit_every=0.2,
            config={"session.timeout.ms": SESSION * 1000},
        )
        self.handled: list[tuple[str, int]] = []
        self._slow = slow
        self.app.on(site.one.Visit, concurrency=4)(either(self._handle, is_async=is_async))
        self.thread = threading.Thread(target=self.app.run, daemon=True)
        self.thread.start()

    def _handle(self, message: Message[Any]) -> None:
        event = message.event
        if event.user == "user0" and event.seconds == 0:
            assert self._slow.wait(60)
        time.sleep(0.02)
        self.handled.append((event.user, event.seconds))

    def leave(self) -> None:
        self.app.stop()
        self.thread.join(60)
        assert not self.thread.is_alive()


def send_to_each_partition(site: Site, numbers: range) -> None:
    for partition in range(PARTITIONS):
        users = range(partition, _USERS, PARTITIONS)
        events = [(f"user{user}", number) for number in numbers for user in users]
        send(site, *events, partition=partition)


@pytest.mark.parametrize("is_async", [False, True])
def test_members_share_keys_while_a_slow_one_is_in_hand(
    cluster: Cluster, tmp_path: Path, is_async: bool, caplog: pytest.LogCaptureFixture
) -> None:
    site = new_site(tmp_path, cluster.broker, cluster.registry)
    declare(cluster.session, cluster.broker, site.topic, PARTITIONS)
    send_to_each_partition(site, range(_EACH // 2))
    slow = threading.Event()
    one = Member(cluster, site, slow, is_async)
    until(lambda: len(one.handled) >= 10)
    other = Member(cluster, site, slow, is_async)
    until(lambda: len(set(cluster.owners(site.topic, site.topic).values())) == 2)
    send_to_each_partition(site, range(_EACH // 2, _EACH))
    until(lambda: bool(other.handled))  # though a slow one is in hand
    slow.set()
    every = {(f"user{user}", number) for number in range(_EACH) for user in range(_USERS)}
    until(lambda: {*one.handled, *other.handled} == every)
    until(lambda: sum(cluster.offsets(site.topic).values()) == len(every))
    one.leave()
    other.leave()
    for member in (one, other):
        for user in {user for user, _ in member.handled}:
            order = [number for name, number in member.handled if name == user]
            assert order == sorted(order), "each key in its order"
    repeated = [each for each, n in Counter(one.handled + other.handled).items() if n > 1]
    assert len(repeated) <= 4 * 2 + _EACH * 3, repeated  # what was in hand, and what ended behind
    assert not [each for each in caplog.messages if "did not poll" in each]
