"""The sampler over a real broker: log ends of topics, and the lag of a group that stands still."""

from __future__ import annotations

import time
import uuid
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

from headworks._audit import sampler
from headworks._audit.sampler import BrokerMeasure, Sampler
from headworks._audit.store import AuditStore
from headworks._audit.store.samples import SampleKind, read_samples
from headworks._kafka.client_properties import client_properties
from headworks._server import child_process
from tests.waiting import PATIENCE

pytestmark = pytest.mark.e2e

MINUTE = 60_000


def test_log_ends_and_lags_are_sampled(
    broker: child_process.Service, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sampler, "_AGE_SECONDS", PATIENCE)  # an age that comes later is not known
    topic, group = f"t-{uuid.uuid4()}", f"g-{uuid.uuid4()}"
    connection = client_properties(broker.address)
    admin = AdminClient(connection)
    admin.create_topics([NewTopic(topic, 2, 1)])[topic].result(60)
    producer = Producer(connection)
    for number in range(10):
        producer.produce(topic, b"x", partition=number % 2)
    assert producer.flush(60) == 0
    consumer = Consumer({**connection, "group.id": group, "enable.auto.commit": False})
    places = [TopicPartition(topic, 0, 3), TopicPartition(topic, 1, 5)]
    consumer.commit(offsets=places, asynchronous=False)
    consumer.close()
    store = AuditStore(f"sqlite:///{tmp_path / 'audit.db'}")
    try:
        now = int(time.time() * 1000) // MINUTE * MINUTE
        Sampler(store, BrokerMeasure(store, broker.address, None), now=lambda: now).sample()
        for kind, name, value in (
            (SampleKind.LOG_END, topic, 10),
            (SampleKind.GROUP_LAG, group, 2),
        ):
            found = read_samples(store, kind, name, since=now, until=now + MINUTE, now=now)
            assert found.values == (value,)
        age = read_samples(
            store, SampleKind.GROUP_AGE, group, since=now, until=now + MINUTE, now=now
        )
        assert age.values[0] is not None
        assert age.values[0] > 0
    finally:
        store.close()
