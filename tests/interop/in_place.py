"""The broker of the tests: ours, or Apache Kafka in its place.

Rule: HEADWORKS_TEST_BROKER=apache-kafka is the whole switch. A test that takes its broker from
`start_in_place` states what any Kafka client may rely on; one that looks at more than that is
marked `our_broker` with the reason.
"""

from __future__ import annotations

import os
from pathlib import Path

from headworks._server import child_process

VARIABLE = "HEADWORKS_TEST_BROKER"
_CHOICES = ("headworks", "apache-kafka")
_CONFIG = {
    # so that no test waits 6 seconds for a member that was killed
    "group.min.session.timeout.ms": "1000",
    # messages with times of years ago live as long as the test that made them
    "log.initial.task.delay.ms": "3600000",
}


def is_apache_kafka() -> bool:
    """Whether the tests run on Apache Kafka."""
    choice = os.environ.get(VARIABLE, "headworks")
    assert choice in _CHOICES, f"{VARIABLE} is {choice!r}, not one of {', '.join(_CHOICES)}"
    return choice == "apache-kafka"


def start_in_place(folder: Path, *options: str) -> child_process.Service:
    """Our broker with `options`, or Apache Kafka, its data in `folder`."""
    if is_apache_kafka():
        from tests.interop import apache_kafka

        return apache_kafka.start(folder, config=_CONFIG)
    return child_process.start(
        ["broker", "start", "--listen", "127.0.0.1:0", "--data-dir", str(folder), *options]
    )


def log_folder(folder: Path, topic: str) -> Path:
    """Where the broker that was started in `folder` keeps the segments of a topic's partition 0."""
    return folder / ("data" if is_apache_kafka() else "broker/logs") / f"{topic}-0"
