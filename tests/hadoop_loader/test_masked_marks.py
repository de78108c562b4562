"""Masked views hide what any version of the subject marks, on a metastore in memory."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

import pytest

from hadoop_loader._commit.commit_record import _checksum
from hadoop_loader._commit.transaction import Transaction
from hadoop_loader._config import WarehouseConfig
from hadoop_loader._operations.drop import Drop
from hadoop_loader._operations.load import Load
from hadoop_loader._operations.rebuild import Rebuild
from headworks.errors import UsageError
from tests.hadoop_loader.memory import World, encoded

pytestmark = pytest.mark.unit

COUNT = {"name": "n", "type": "int"}


def person(name: str, *aliases: str, **more: Any) -> dict[str, Any]:
    field = {"name": name, "type": "string", "aliases": list(aliases), **more}
    return {"type": "record", "name": "Person", "fields": [COUNT, field]}


MARKED = person("ssn", sensitive=True)
RENAMED = person("social", "ssn")
AGAIN = person("national", "social")


@pytest.fixture
def people(world: World) -> World:
    world.catalog.masked = {}
    return world


def load(world: World, schema: dict[str, Any], schema_id: int) -> None:
    value = {f["name"]: 1 if f is COUNT else "ada" for f in schema["fields"]}
    world.log.append("people", encoded(schema, value, schema_id))
    assert Load(world.context()).run().rows == 1


def is_masked(world: World, name: str) -> bool:
    assert world.catalog.masked is not None
    return f"CASE WHEN FALSE THEN `{name}` END AS `{name}`" in world.catalog.masked["people"][0]


def test_versions_that_were_never_a_tables_latest_are_marked(people: World) -> None:
    people.register("people", MARKED)
    people.register("people", RENAMED)
    load(people, AGAIN, people.register("people", AGAIN))
    assert is_masked(people, "national")
    Rebuild(people.context()).run("people")
    assert is_masked(people, "national")


def test_a_mark_outlives_a_table(people: World) -> None:
    load(people, MARKED, people.register("people", MARKED))
    load(people, RENAMED, people.register("people", RENAMED))
    assert is_masked(people, "social")
    Drop(people.context()).run("people", reload=True)
    assert people.catalog.masked == {}
    assert Load(people.context()).run().rows == 2
    assert is_masked(people, "social")


def test_a_mark_that_came_and_went_between_two_loads_counts(people: World) -> None:
    plain = person("ssn")
    load(people, plain, people.register("people", plain))
    assert not is_masked(people, "ssn")
    people.register("people", MARKED)
    people.register("people", plain)
    assert Load(people.context()).run().rows == 0
    assert is_masked(people, "ssn")
    number = people.context().log.latest()
    Load(people.context()).run()
    assert people.context().log.latest() == number, "the second load found nothing to define"


def test_a_mark_of_a_deleted_version_between_two_loads_counts(people: World) -> None:
    plain = person("ssn")
    load(people, plain, people.register("people", plain))
    people.register("people", MARKED)
    first, deleted = people.subjects["people"]
    people.subjects["people"] = [deleted, first]  # deleted versions come first
    Load(people.context()).run()
    assert is_masked(people, "ssn")


def test_a_masked_view_that_is_too_long_holds_up_nothing(
    people: World, caplog: pytest.LogCaptureFixture
) -> None:
    load(people, RENAMED, people.register("people", RENAMED))
    assert not is_masked(people, "social")
    people.catalog.max_masked_characters = 10
    now = person("social", "ssn", sensitive=True)
    with caplog.at_level(logging.ERROR):
        load(people, now, people.register("people", now))
    assert people.catalog.masked == {}, "the old view would show what is sensitive now"
    assert "table people has no masked view: the masked view is too long" in caplog.text
    load(people, now, 2)
    assert not Load(people.context()).run().refused
    people.catalog.max_masked_characters = None
    Load(people.context()).run()
    assert is_masked(people, "social")


def test_a_masked_view_follows_its_view_to_another_database(people: World) -> None:
    load(people, MARKED, people.register("people", MARKED))
    people.catalog.prefix = "other."
    Load(people.context()).run()
    assert people.catalog.masked is not None
    assert people.catalog.masked["people"][0].endswith("FROM other.people")


@pytest.mark.parametrize("name", ["Shop", "sHOP_files"])
def test_hive_ignores_the_case_of_a_database(tmp_path: Path, name: str) -> None:
    with pytest.raises(UsageError, match="it has the others"):
        WarehouseConfig(tmp_path, "b", "r", database="shop", masked_database=name)


def test_a_table_of_an_earlier_release_waits_for_its_marks(people: World) -> None:
    # JSON text of a recursive type, which earlier releases did not mark.
    secret = {"name": "ssn", "type": "string", "sensitive": True}
    text = {
        "type": "record",
        "name": "Node",
        "fields": [secret, {"name": "next", "type": "string"}],
    }
    load(people, text, people.register("people", text))
    file = people.root / "_headworks/commits/00000001.json"
    record = json.loads(file.read_text())
    state = record["commit"]["tables"]["people"]
    del state["marked"], state["sensitive"]  # as an earlier release wrote it
    record["checksum"] = _checksum(record["commit"])
    file.write_text(json.dumps(record))
    people.catalog.masked = {"people": ("SELECT `ssn`, `next`", "commit 1")}
    Transaction(people.context()).recover()
    assert people.catalog.masked == {}
    (old,) = people.subjects["people"]
    people.subjects["people"] = [old._replace(text=json.dumps(_marked(text)))]
    Load(people.context()).run()
    assert is_masked(people, "ssn")
    assert is_masked(people, "next")


def _marked(text: dict[str, Any]) -> dict[str, Any]:
    """The text as this release writes it: JSON text is marked."""
    first, second = text["fields"]
    return {**text, "fields": [first, {**second, "type": {"type": "string", "sensitive": True}}]}
