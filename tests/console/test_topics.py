"""The list of topics: when each had its last message."""

from __future__ import annotations

import pytest

from headworks._console.app.visibility import ALL_VISIBLE
from headworks._console.sources.topics import GrowthTimes, TopicRow, TopicsSnapshot
from headworks._console.views.paging import ListQuery
from headworks._console.views.topics import topic_list

pytestmark = pytest.mark.unit


def test_a_log_that_grows_has_the_time_of_the_reading_that_saw_it() -> None:
    growth = GrowthTimes()
    growth.note({"busy": 5, "idle": 9}, 1_000)
    assert (growth.since_ms, growth.times_ms) == (1_000, {})  # nobody knows when those came
    growth.note({"busy": 7, "idle": 9, "new": 1, "empty": 0}, 2_000)
    assert growth.times_ms == {"busy": 2_000, "new": 2_000}
    growth.note({"busy": 7, "idle": 9, "empty": 3}, 3_000)
    assert growth.times_ms == {"busy": 2_000, "empty": 3_000}
    growth.note({"busy": 2, "idle": 9, "new": 4}, 4_000)  # busy was made again, and so was new
    assert growth.times_ms == {"busy": 2_000, "new": 4_000}
    assert growth.since_ms == 1_000


def test_the_list_has_the_last_message_of_each_topic() -> None:
    rows = [TopicRow("busy", 1, 5, 5, 1.0, (1.0,), 2_000), TopicRow("idle", 1, 5, 5, 0.0, ())]
    broker = TopicsSnapshot({row.topic: row for row in rows}, 1_000)
    found = topic_list(broker, None, None, ALL_VISIBLE, ListQuery())
    assert [(one.topic, one.last_message_ms) for one in found.part.rows] == [
        ("busy", 2_000),
        ("idle", None),
    ]
    assert found.watched_since_ms == 1_000
