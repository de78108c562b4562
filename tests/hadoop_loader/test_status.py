"""`load status` beside a real broker: how far behind the tables are, in messages and minutes."""

from __future__ import annotations

from functools import partial

import pytest

from hadoop_loader._fetch.kafka_log import KafkaLog
from hadoop_loader._fetch.ranges import Watermarks
from hadoop_loader._operations import status
from hadoop_loader._operations.status import compute_lag, warehouse_status
from headworks.errors import UsageError
from tests.hadoop_loader.real import Stage

pytestmark = pytest.mark.e2e


def test_status_says_how_far_behind_each_topic_is(stage: Stage) -> None:
    busy, idle, behind = map(stage.topic, ("busy", "idle", "behind"))
    for topic in (busy, idle, behind):
        stage.send(topic, 0, 99, 3)
    stage.load()
    assert stage.lags() == {busy: (0, 0.0), idle: (0, 0.0), behind: (0, 0.0)}

    stage.send(busy, 0, 5, 200)  # more than is asked of a partition at a time
    stage.send(busy, 1, 25, 300)
    stage.send(behind, 1, 90)
    lags = stage.lags()
    assert lags[idle] == (0, 0.0)
    assert [lags[topic][0] for topic in (busy, behind)] == [500, 1]
    assert 25 <= lags[busy][1] < 27, "the oldest of any partition"
    assert 90 <= lags[behind][1] < 92

    stage.load()
    assert set(stage.lags().values()) == {(0, 0.0)}


def test_status_without_a_broker_says_the_rest(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(status, "KafkaLog", partial(KafkaLog, timeout=1))
    topic = stage.topic("alone")
    with pytest.raises(UsageError, match="is not a warehouse"):
        warehouse_status(stage.root / "other")
    stage.send(topic, 0, 1, 7)
    stage.load()
    stage.send(topic, 0, 1, 2)
    for bootstrap in (None, "127.0.0.1:1"):
        found = warehouse_status(stage.root, bootstrap)
        (one,) = found["topics"]
        assert (one["topic"], one["rows"], one["offsets"][0]) == (topic, 7, 7)
        assert (one["lag_messages"], one["lag_minutes"]) == (None, None)
        assert (found["broker_error"] is None) == (bootstrap is None)


def test_an_age_that_is_not_known_is_not_said_to_be_none() -> None:
    marks = {0: Watermarks(0, 9), 1: Watermarks(3, 5)}
    assert compute_lag({0: 7}, marks, 60_000, 120.0) == (4, 1.0)
    assert compute_lag({0: 7}, marks, None, 120.0) == (4, None), "compaction took the first of them"
    assert compute_lag({0: 9, 1: 5}, marks, None, 120.0) == (0, 0.0)
