"""The assignment of partitions to brokers, and of groups to coordinators.

Rules: these are pure functions with the same result on every broker. An assigned partition never
moves.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from hashlib import blake2b


def assign(
    count: int, brokers: Iterable[int], load: Mapping[int, int], present: tuple[int, ...] = ()
) -> tuple[int, ...]:
    """Return the brokers of `count` partitions of a topic; the `present` ones stay.

    Each new partition goes to the broker with the fewest partitions of this topic, then to the one
    with the fewest of all topics (`load`), then to the lowest id. Raises LookupError if there are
    no brokers.
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
    """Return how many partitions each broker has."""
    load: Counter[int] = Counter()
    for assignment in assignments:
        load.update(assignment)
    return load


def coordinator_of(group: str, brokers: Iterable[int]) -> int | None:
    """Return the broker that coordinates a group, by the group's own order of preference.

    If a broker leaves, its groups spread over the others, and no other group moves.
    """
    return max(brokers, key=lambda broker: _preference(group, broker), default=None)


def _preference(group: str, broker: int) -> bytes:
    return blake2b(group.encode(errors="replace"), digest_size=8, salt=b"%d" % broker).digest()
