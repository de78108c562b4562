"""The order in which services move to a version, and what each step waits for. Pure.

Rules:

- The order follows from what is so, and not from the level alone. A reader that cannot read the new
  version must move before anybody writes it. A writer whose version the new readers cannot read
  must move before they do. The level says what holds if nobody uses the version yet.
- A program has moved if it used an older version last more than SETTLED_MS before it used the new
  one. A host that still runs the old release therefore holds up the step.
- A step that waits for readers is never called safe while unknown readers exist. It waits for them
  unless every older version can read the new one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any, Final

from headworks._audit.usage import LOADER, SubjectUsage, VersionUser
from headworks.compatibility import Level, Version, check_pair

SETTLED_MS: Final = 600_000
_CONSUMERS, _PRODUCERS = "upgrade the consumers", "upgrade the producers"


@dataclass(frozen=True, slots=True)
class LaggingProgram:
    """A program that still uses an older version: when last, and whether it must move first."""

    name: str
    version: int
    hosts: tuple[str, ...]
    last_used: int  # milliseconds since 1970 UTC
    breaks: bool  # it cannot work beside programs on the new version


@dataclass(frozen=True, slots=True)
class RolloutStep:
    """One step: the programs it is about, whether it may begin, and what it waits for."""

    what: str
    programs: tuple[LaggingProgram, ...]
    is_done: bool
    waits_for: tuple[str, ...]

    @property
    def is_safe(self) -> bool:
        """Whether the step may begin now."""
        return not self.waits_for


@dataclass(frozen=True, slots=True)
class Rollout:
    """The steps from the versions in use to `version`, in order."""

    subject: str
    version: int
    level: Level
    order: str
    steps: tuple[RolloutStep, ...]

    @property
    def is_done(self) -> bool:
        """Whether every program is known to use the version."""
        return all(step.is_done and step.is_safe for step in self.steps)

    def as_dict(self, instant: Callable[[int], object]) -> dict[str, Any]:
        """Return the rollout as JSON, with each time as `instant` gives it."""
        found = asdict(self)
        for step, known in zip(found["steps"], self.steps, strict=True):
            step["is_safe"] = known.is_safe
            for program in step["programs"]:
                program["last_used"] = instant(program["last_used"])
        return {**found, "level": self.level.value, "is_done": self.is_done}


def rollout(
    usage: SubjectUsage, schemas: Iterable[Version], level: Level, version: int, *, after: int
) -> Rollout:
    """Return the steps to `version`, one of `schemas`; uses before `after` are over."""
    known = {one.number: one.schema for one in schemas}
    target = known[version]
    readers = _lagging(usage, version, after, reads=True)
    writers = _lagging(usage, version, after, reads=False)
    broken_readers = _broken(readers, {n: check_pair(known[n], target) for n in readers})
    broken_writers = _broken(writers, {n: check_pair(target, known[n]) for n in writers})
    producers_first = broken_writers or (level.forward and not level.backward)
    unseen = _unseen(usage, after)
    consumers_first = broken_readers or (level.backward and not level.forward)
    if unseen and not consumers_first:
        older = (schema for number, schema in known.items() if number < version)
        consumers_first = any(check_pair(schema, target) for schema in older)
    consuming = _programs(readers, broken_readers)
    producing = _programs(writers, broken_writers)
    if broken_readers and broken_writers:
        why = "consumers and producers break each other: move all at once, or to a new topic"
        stuck = (why,)
        steps = (
            RolloutStep(_CONSUMERS, consuming, not consuming, stuck),
            RolloutStep(_PRODUCERS, producing, not producing, stuck),
        )
        return Rollout(usage.subject, version, level, "none", steps)
    if producers_first and not broken_readers:
        first = RolloutStep(_PRODUCERS, producing, not producing, ())
        held = _held(writers, broken_writers)
        steps = (first, RolloutStep(_CONSUMERS, consuming, not consuming and not unseen, held))
        return Rollout(usage.subject, version, level, "producers first", steps)
    first = RolloutStep(_CONSUMERS, consuming, not consuming and not unseen, ())
    held = _held(readers, broken_readers)
    if consumers_first:
        held += unseen
    steps = (first, RolloutStep(_PRODUCERS, producing, not producing, held))
    order = "consumers first" if consumers_first else "any order"
    return Rollout(usage.subject, version, level, order, steps)


_Users = Mapping[int, tuple[VersionUser, ...]]


def _lagging(usage: SubjectUsage, version: int, after: int, *, reads: bool) -> _Users:
    """Return the programs on older versions, by version: those that have not moved."""
    by_version = {
        one.version: one.read_by if reads else one.written_by
        for one in usage.versions
        if one.version <= version
    }
    moved = {
        (user.tier, user.application, user.topic): user.last_used
        for user in by_version.get(version, ())
    }
    found = {}
    for number, users in by_version.items():
        staying = tuple(
            user
            for user in users
            if user.tier != LOADER
            and user.last_used > after
            and user.last_used
            > moved.get((user.tier, user.application, user.topic), 0) - SETTLED_MS
        )
        if number != version and staying:
            found[number] = staying
    return found


def _broken(users: _Users, findings: Mapping[int, object]) -> frozenset[int]:
    """Return the versions in use that do not work beside the new one."""
    return frozenset(number for number in users if findings[number])


def _programs(users: _Users, broken: frozenset[int]) -> tuple[LaggingProgram, ...]:
    found = [
        LaggingProgram(user.name, number, user.hosts, user.last_used, number in broken)
        for number, group in users.items()
        for user in group
    ]
    return tuple(sorted(found, key=lambda one: (not one.breaks, one.version, one.name)))


def _held(users: _Users, broken: frozenset[int]) -> tuple[str, ...]:
    return tuple(
        f"{user.name} is on version {number} and would break"
        for number in sorted(broken)
        for user in users[number]
    )


def _unseen(usage: SubjectUsage, after: int) -> tuple[str, ...]:
    """Return the readers that nobody can see into."""
    found = [f"unknown readers: {name}" for name in usage.unknown_readers or ()]
    if usage.unknown_readers is None:
        found.append("no broker was asked for readers that report nothing")
    if usage.since is None:
        found.append("nobody has counted its messages by schema")
    others = (*usage.dict_readers, *usage.unregistered_readers, *usage.uncounted)
    seen = [user for user in others if user.group is not None and user.last_used > after]
    found += [f"{user.name} has no known version" for user in seen]
    return tuple(found)
