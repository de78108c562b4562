"""Who gets which partition, and who coordinates which group.

Rules: pure, and the same answer on every broker for the same question. What is assigned stays.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from hashlib import blake2b

__all__ = ["assign", "coordinator_of", "load_of"]


def assign(
    count: int, brokers: Iterable[int], load: Mapping[int, int], present: tuple[int, ...] = ()
) -> tuple[int, ...]:
    """The brokers of a topic's partitions: `present` ones stay, new ones follow up to `count`.

    Each new partition goes to the broker with the fewest of this topic; among those to the one
    with the fewest of all (`load`), then to the lowest id. LookupError if there are no brokers.
    """
    own = Counter(present)
    alive = sorted(set(brokers))
    if not alive:
        raise LookupError("no broker is alive")
    given = list(present)
    while len(given) < count:
        at = min(alive, key=lambda broker: (own[broker], load.get(broker, 0), broker))
        own[at] += 1
        given.append(at)
    return tuple(given)


def load_of(assignments: Iterable[tuple[int, ...]]) -> Counter[int]:
    """How many partitions each broker has."""
    load: Counter[int] = Counter()
    for assignment in assignments:
        load.update(assignment)
    return load


def coordinator_of(group: str, brokers: Iterable[int]) -> int | None:
    """The broker that coordinates a group: each group has an order of preference of its own.

    So the groups of a broker that goes spread over those that stay, and no other group moves.
    """
    return max(brokers, key=lambda broker: _preference(group, broker), default=None)


def _preference(group: str, broker: int) -> bytes:
    return blake2b(group.encode(errors="replace"), digest_size=8, salt=b"%d" % broker).digest()
