"""Members that close just as their groups give them partitions: `python -m ... BROKER TOPIC`.

A member joins by itself, and nobody takes what it was given before it closes. Its callback then
takes about as long as a broker takes to let a member go. A program of its own runs this: a thread
that librdkafka keeps would hold Python's lock, and stop all others.
"""

from __future__ import annotations

import itertools
import sys
import time
import uuid
from typing import Any

from confluent_kafka import ConsumerGroupState
from confluent_kafka.admin import AdminClient

from headworks._kafka.clients import KafkaConsumer
from tests.waiting import until

_KINDS: tuple[dict[str, Any], ...] = (
    {},
    {"partition.assignment.strategy": "cooperative-sticky"},
    {"group.protocol": "consumer"},
)
_DELAYS_MS = {  # of members that leave their groups, and of static ones, which tell nobody
    False: (0, 1, 2, 3, 4, 5, 6, 7, 8, 10, 12),
    True: (0, 0.05, 0.1, 0.15, 0.2, 0.3, 0.4, 0.6),
}


def _member(
    broker: str, topic: str, group: str, kind: dict[str, Any], delay: float
) -> KafkaConsumer:
    def assigned(*_: object) -> None:
        end = time.perf_counter() + delay / 1000
        while time.perf_counter() < end:
            pass

    consumer = KafkaConsumer({"bootstrap.servers": broker, "group.id": group, **kind})
    consumer.subscribe([topic], on_assign=assigned)
    return consumer


def close_members(broker: str, topic: str) -> int:
    """Close members of all kinds after all delays; return how many."""
    base, members = f"closing-{uuid.uuid4().hex[:8]}", list[KafkaConsumer]()
    for (number, kind), static in itertools.product(enumerate(_KINDS), _DELAYS_MS):
        for delay in _DELAYS_MS[static]:
            group = f"{base}-{number}-{static}-{delay}"
            named = {**kind, "group.instance.id": "one"} if static else kind
            members.append(_member(broker, topic, group, named, delay))
    admin = AdminClient({"bootstrap.servers": broker})

    def have_joined() -> bool:
        found = admin.list_consumer_groups(states={ConsumerGroupState.STABLE}).result(60).valid
        joined = [each for each in found if each.group_id.startswith(base)]
        return len(joined) == len(members)

    until(have_joined)
    time.sleep(0.5)  # the last answers are on their way
    for member in members:
        member.close()
    return len(members)


if __name__ == "__main__":
    print(close_members(*sys.argv[1:3]), flush=True)
