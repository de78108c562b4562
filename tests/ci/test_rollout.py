"""The order of a rollout: by what would break, and never safe while somebody is unseen."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from headworks._audit.usage import SubjectUsage, VersionUsage, VersionUser
from headworks._ci.rollout import SETTLED_MS, Rollout, rollout
from headworks.compatibility import Level, Version
from headworks.schema import parse

pytestmark = pytest.mark.unit

NOW = 1_000 * SETTLED_MS
ID = '{"name": "id", "type": "long"}'
NEEDED = '{"name": "city", "type": "string"}'
OPTIONAL = '{"name": "note", "type": "string", "default": ""}'


def schema(*fields: str) -> Any:
    return parse(f'{{"type": "record", "name": "Trip", "fields": [{", ".join(fields)}]}}')


# Version 1 needs the city. Version 2 does not have it. Version 3 adds an optional field to 2.
SCHEMAS = [
    Version(1, schema(ID, NEEDED)),
    Version(2, schema(ID)),
    Version(3, schema(ID, OPTIONAL)),
    Version(4, schema(ID, NEEDED)),
]


def user(tier: str, at: int = NOW, application: str = "app") -> VersionUser:
    return VersionUser(tier, application, ("host",), "trips", 1, at)


def used(**versions: tuple[VersionUser, ...]) -> SubjectUsage:
    found = []
    for number in (4, 3, 2, 1):
        users = versions.get(f"v{number}", ())
        writing = tuple(one for one in users if not one.tier.startswith("consumer:"))
        reading = tuple(one for one in users if one.tier.startswith("consumer:"))
        found.append(VersionUsage(number, 10 + number, "", writing, reading))
    return SubjectUsage("trips-value", ("trips",), 0, NOW, tuple(found), unknown_readers=())


def plan(usage: SubjectUsage, version: int, level: Level = Level.BACKWARD) -> Rollout:
    return rollout(usage, SCHEMAS, level, version, after=NOW - 100 * SETTLED_MS)


def test_readers_that_would_break_move_first() -> None:
    found = plan(used(v1=(user("consumer:g"), user("producer"))), 2)
    assert found.order == "consumers first"
    consumers, producers = found.steps
    assert [(one.name, one.version, one.breaks) for one in consumers.programs] == [
        ("group g (app)", 1, True)
    ]
    assert consumers.is_safe
    assert not consumers.is_done
    assert producers.waits_for == ("group g (app) is on version 1 and would break",)


def test_the_next_step_is_safe_once_they_have_moved() -> None:
    moved = used(
        v1=(user("consumer:g", NOW - SETTLED_MS), user("producer")), v2=(user("consumer:g"),)
    )
    consumers, producers = plan(moved, 2).steps
    assert consumers.is_done
    assert producers.is_safe
    assert [one.name for one in producers.programs] == ["app"]
    late = used(v1=(user("consumer:g", NOW - SETTLED_MS + 1),), v2=(user("consumer:g"),))
    assert not plan(late, 2).steps[1].is_safe  # one host still reads with the old release


@pytest.mark.parametrize(
    ("change", "told"),
    [
        ({"unknown_readers": ("legacy",)}, "legacy"),
        ({"unknown_readers": None}, "no broker"),
        ({"since": None}, "counted"),
        ({"dict_readers": (user("consumer:probe"),)}, "probe"),
        ({"unregistered_readers": (user("consumer:own"),)}, "own"),
        ({"uncounted": (user("consumer:old"),)}, "old"),
    ],
)
def test_nothing_is_safe_while_a_reader_is_unseen(change: dict[str, Any], told: str) -> None:
    found = plan(replace(used(v1=(user("producer"),)), **change), 2)
    consumers, producers = found.steps
    assert not consumers.is_done
    assert any(told in reason for reason in producers.waits_for)


@pytest.mark.parametrize("level", [Level.NONE, Level.FULL])
def test_an_unseen_reader_holds_up_what_could_break_it(level: Level) -> None:
    """At these levels no order is given, and version 1 cannot read version 2."""
    found = plan(replace(used(v1=(user("producer"),)), unknown_readers=("legacy",)), 2, level)
    assert found.order == "consumers first"
    assert found.steps[1].waits_for == ("unknown readers: legacy",)
    usage = replace(used(v2=(user("producer"),)), unknown_readers=("legacy",))
    only = [one for one in SCHEMAS if one.number in (2, 3)]
    harmless = rollout(usage, only, level, 3, after=0)
    assert harmless.order == "any order"
    assert all(step.is_safe for step in harmless.steps)


def test_a_change_that_breaks_nobody_has_no_order() -> None:
    found = plan(used(v2=(user("consumer:g"), user("producer"))), 3, Level.FULL)
    assert found.order == "any order"
    assert all(step.is_safe for step in found.steps)
    assert not found.is_done


def test_writers_whose_data_the_new_readers_cannot_read_move_first() -> None:
    found = plan(used(v2=(user("consumer:g"), user("producer"))), 4, Level.FORWARD)
    assert found.order == "producers first"
    producers, consumers = found.steps
    assert producers.is_safe
    assert consumers.waits_for == ("app is on version 2 and would break",)


def test_a_level_decides_if_nobody_uses_an_older_version() -> None:
    assert plan(used(), 3, Level.BACKWARD).order == "consumers first"
    assert plan(used(), 3, Level.FORWARD).order == "producers first"
    assert plan(used(), 3, Level.FULL).order == "any order"
    assert plan(used(), 3).is_done


def test_old_uses_are_over_and_newer_versions_do_not_count() -> None:
    usage = used(v1=(user("consumer:g", NOW - 101 * SETTLED_MS),), v4=(user("producer"),))
    assert plan(usage, 3).is_done
