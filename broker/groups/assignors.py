"""The server-side assignors of the consumer group protocol (KIP-848): uniform and range.

Rules:

- An assignor is pure: the same members, topics, and previous assignment give the same result.
- Every partition of a topic that somebody subscribes to gets exactly one member, which subscribes
  to the topic. No other partition is assigned.
- `uniform` moves as few partitions as balance allows. `range` gives a member the same partition
  numbers of all topics with equally many partitions, so that such topics can be joined.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from uuid import UUID

# A partition by the id of its topic and its number
OwnedPartition = tuple[UUID, int]
Assignment = dict[str, frozenset[OwnedPartition]]  # by member id


@dataclass(frozen=True, slots=True)
class AssignorInput:
    """The question to an assignor.

    `subscriptions` holds the ids of existing topics by member id. `sizes` are the numbers of
    partitions. `order` sorts the members for `range`; a member that returns has its earlier place.
    """

    subscriptions: Mapping[str, frozenset[UUID]]
    sizes: Mapping[UUID, int]
    previous: Mapping[str, frozenset[OwnedPartition]]
    order: Mapping[str, str]

    def partitions(self) -> list[OwnedPartition]:
        """Return the partitions to assign, in order."""
        wanted = frozenset[UUID]().union(*self.subscriptions.values())
        return [(topic, index) for topic in sorted(wanted) for index in range(self.sizes[topic])]


def assign_uniform(asked: AssignorInput) -> Assignment:
    """Give all members equally many partitions, as far as their subscriptions allow."""
    kinds = set(asked.subscriptions.values())
    if len(kinds) <= 1:
        return _frozen(_same_subscriptions(asked))
    return _frozen(_different_subscriptions(asked))


def assign_range(asked: AssignorInput) -> Assignment:
    """Give each member of a topic, in order, a range of its partitions."""
    found: dict[str, set[OwnedPartition]] = {member: set() for member in asked.subscriptions}
    by_topic: dict[UUID, list[str]] = {}
    for member in sorted(asked.subscriptions, key=asked.order.__getitem__):
        for topic in asked.subscriptions[member]:
            by_topic.setdefault(topic, []).append(member)
    for topic, members in by_topic.items():
        share, more = divmod(asked.sizes[topic], len(members))
        first = 0
        for place, member in enumerate(members):
            end = first + share + (place < more)
            found[member].update((topic, index) for index in range(first, end))
            first = end
    return _frozen(found)


ASSIGNORS: Mapping[str, Callable[[AssignorInput], Assignment]] = {
    "uniform": assign_uniform,
    "range": assign_range,
}
DEFAULT_ASSIGNOR = "uniform"


def _same_subscriptions(asked: AssignorInput) -> dict[str, set[OwnedPartition]]:
    """Fill each member up to its share: the floor of the mean, and one more for some."""
    left = dict.fromkeys(asked.partitions())
    members = sorted(asked.subscriptions)
    share, more = divmod(len(left), len(members)) if members else (0, 0)
    found: dict[str, set[OwnedPartition]] = {}
    for member in members:
        kept = [one for one in sorted(asked.previous.get(member, ())) if one in left]
        room = share
        if more and len(kept) > share:
            room, more = share + 1, more - 1
        found[member] = set(kept[:room])
        for one in kept[:room]:
            del left[one]
    free = iter(list(left))
    for member in members:
        taken = found[member]
        room = share - len(taken)
        if room >= 0 and more:
            room, more = room + 1, more - 1
        taken.update(one for _, one in zip(range(room), free, strict=False))
    return found


def _different_subscriptions(asked: AssignorInput) -> dict[str, set[OwnedPartition]]:
    """Keep what members have, give the rest to the least loaded, and then level the loads."""
    found: dict[str, set[OwnedPartition]] = {member: set() for member in asked.subscriptions}
    able: dict[UUID, list[str]] = {}
    for member in sorted(asked.subscriptions):
        for topic in asked.subscriptions[member]:
            able.setdefault(topic, []).append(member)
    left = dict.fromkeys(asked.partitions())
    for member in sorted(found):
        for one in sorted(asked.previous.get(member, ())):
            if one in left and one[0] in asked.subscriptions[member]:
                del left[one]
                found[member].add(one)
    heaps = {
        topic: [(len(found[member]), member) for member in members]
        for topic, members in able.items()
    }
    for heap in heaps.values():
        heapq.heapify(heap)
    for one in sorted(left, key=lambda one: (len(able[one[0]]), one)):  # the choosiest first
        member = _least_loaded(heaps[one[0]], found)
        found[member].add(one)
        heapq.heappush(heaps[one[0]], (len(found[member]), member))
    _level(found, asked.subscriptions, heaps)
    return found


def _least_loaded(heap: list[tuple[int, str]], found: Mapping[str, set[OwnedPartition]]) -> str:
    """Take the member with the fewest partitions from the heap, whose loads may be old."""
    while True:
        load, member = heap[0]
        if load == len(found[member]):
            heapq.heappop(heap)
            return member
        heapq.heapreplace(heap, (len(found[member]), member))


def _level(
    found: dict[str, set[OwnedPartition]],
    subscriptions: Mapping[str, frozenset[UUID]],
    heaps: Mapping[UUID, list[tuple[int, str]]],
) -> None:
    """Move partitions to members with at least two fewer, until there is no such move.

    Each move makes the sum of the squared loads smaller, so this ends.
    """
    moved = True
    while moved:
        moved = False
        for member in sorted(found, key=lambda one: (-len(found[one]), one)):
            for one in sorted(found[member]):
                heap = heaps[one[0]]
                other = _least_loaded(heap, found)
                if len(found[other]) + 1 < len(found[member]):
                    found[member].discard(one)
                    found[other].add(one)
                    for topic in subscriptions[member]:  # it has fewer than its heaps know
                        heapq.heappush(heaps[topic], (len(found[member]), member))
                    moved = True
                heapq.heappush(heap, (len(found[other]), other))


def _frozen(found: Mapping[str, set[OwnedPartition]]) -> Assignment:
    return {member: frozenset(partitions) for member, partitions in found.items()}
