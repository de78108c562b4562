"""`python -m tests.soak.worker`: a member of a decentralized group that notes all it does.

A line is written at once, so that it survives SIGKILL: `a TIME PARTITION` when a partition comes,
`m TIME PARTITION OFFSET NUMBER` for a message. A message counts as processed when it stands there.
"""

from __future__ import annotations

import argparse
import os
import time
from typing import Any

from consumer_sdk import Consumer, Partition

SESSION_MS = 8000  # that a busy machine holds up a member for so long is rare


def main() -> None:
    parser = argparse.ArgumentParser()
    for name in ("--zookeeper", "--registry", "--group", "--topic", "--log"):
        parser.add_argument(name, required=True)
    given = parser.parse_args()
    log = os.open(given.log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    def note(kind: str, *numbers: int) -> None:
        os.write(log, f"{kind} {time.time():.6f} {' '.join(map(str, numbers))}\n".encode())

    def assigned(partitions: list[Partition]) -> None:
        for _, partition in partitions:
            note("a", partition)

    consumer: Consumer[dict[str, Any]] = Consumer(
        group=given.group,
        topics=[given.topic],
        zookeeper=given.zookeeper,
        membership="zookeeper",
        registry=given.registry,
        commit_every=0.5,
        on_assigned=assigned,
        config={"session.timeout.ms": SESSION_MS},
    )
    consumer.stop_on_signals()
    with consumer:
        for message in consumer:
            note("m", message.partition, message.offset, message.event["number"])


if __name__ == "__main__":
    main()
