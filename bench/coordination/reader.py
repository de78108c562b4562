"""A consumer for `takeover`: prints the partition of each message that it is given."""

from __future__ import annotations

import sys
from typing import Any, Literal, cast

from consumer_sdk import Consumer


def main() -> None:
    """ZOOKEEPER REGISTRY GROUP TOPIC MEMBERSHIP SESSION_MS."""
    zookeeper, registry, group, topic, membership, session = sys.argv[1:]
    consumer: Consumer[dict[str, Any]] = Consumer(
        group=group,
        topics=[topic],
        zookeeper=zookeeper,
        membership=cast("Literal['broker', 'zookeeper']", membership),
        registry=registry,
        commit_every=0.5,
        config={"session.timeout.ms": int(session)},
    )
    with consumer:
        for message in consumer:
            sys.stdout.write(f"{message.partition}\n")
            sys.stdout.flush()


if __name__ == "__main__":
    main()
