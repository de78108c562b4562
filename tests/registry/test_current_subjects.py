"""Subjects that are remembered until the store changes: no answer is older than its request."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from headworks._registry.model.refusals import ServiceError
from headworks._registry.operations import current_subjects
from headworks._registry.operations.deleter import Deleter
from headworks._registry.operations.registrar import ProposedSchema
from headworks._registry.operations.settings import SubjectSettings
from headworks._registry.store import RegistryStore, schemas
from headworks._server.database import PreparedStatement
from tests.registry.in_process import registrar
from tests.registry.rest import record, text_of

pytestmark = pytest.mark.unit

FIRST, WIDER, BROKEN = (
    ProposedSchema(text_of(record(*fields)))
    for fields in (("a:int",), ("a:int", "b:int=0"), ("a:int", "b:int"))
)


def test_a_known_subject_is_not_read_again(
    stores: tuple[RegistryStore, RegistryStore], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = registrar(stores[0])
    made = asked.register("s", FIRST, who="t")
    for _ in range(2):  # from the second time on it is remembered
        assert asked.find_registered("s", FIRST) == made

    def read(*_given: object) -> None:
        raise AssertionError("it was read again")

    monkeypatch.setattr(current_subjects, "resolve", read)
    monkeypatch.setattr(schemas, "latest_version", read)
    assert asked.find_registered("s", FIRST) == made
    assert asked.check("s", WIDER, None).is_compatible
    assert not asked.check("s", BROKEN, "latest").is_compatible


def test_every_change_of_another_server_is_seen(
    stores: tuple[RegistryStore, RegistryStore],
) -> None:
    here, there = registrar(stores[0]), registrar(stores[1])
    settings, deleter = SubjectSettings(stores[1]), Deleter(stores[1])
    first = here.register("s", FIRST, who="t")
    for _ in range(3):
        assert not here.check("s", BROKEN, None).is_compatible
    settings.change_config("s", {"compatibility": "NONE"}, who="t")
    assert here.check("s", BROKEN, None).is_compatible
    wider = there.register("s", WIDER, who="t")
    assert here.find_registered("s", WIDER) == wider
    assert here.find_registered("s", FIRST) == first
    settings.change_mode("s", "READONLY", force=False, who="t")
    with pytest.raises(ServiceError, match=r"read-only|READONLY"):
        here.find_registered("s", WIDER)
    settings.drop_mode("s", recursive=False, who="t")
    deleter.delete_version("s", 2, permanent=False, who="t")
    assert here.find_registered("s", WIDER) is None
    assert here.find_registered("s", FIRST) == first
    deleter.delete_subject("s", permanent=False, who="t")
    assert here.find_registered("s", FIRST) is None
    there.register("t", WIDER, who="t")
    settings.change_config("s", {"alias": "t"}, who="t")
    found = here.find_registered("s", WIDER)
    assert found is not None
    assert found["subject"] == "t"


def test_the_memory_is_bounded(
    stores: tuple[RegistryStore, RegistryStore], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(current_subjects, "MAX_SUBJECTS", 2)
    monkeypatch.setattr(current_subjects, "MAX_CHARACTERS", 200)
    asked = registrar(stores[0])
    for name in "abc":
        asked.register(name, FIRST, who="t")
        asked.find_registered(name, FIRST)
    asked.register("long", ProposedSchema(text_of(record("a:int", doc="d" * 300))), who="t")
    metadata = {"properties": {"owner": "o" * 300}}
    asked.register("annotated", ProposedSchema(FIRST.text, metadata=metadata), who="t")
    asked.register("configured", FIRST, who="t")
    config = {"compatibility": "NONE", "defaultMetadata": metadata}
    SubjectSettings(stores[0]).change_config("configured", config, who="t")
    for name in ("long", "annotated", "configured"):
        for _ in range(2):
            asked.check(name, WIDER, None)
    assert [one.name for one in asked._current._known] == ["b", "c"]


def test_a_first_version_is_decided_by_one_query_before_the_lock_and_one_under_it(
    stores: tuple[RegistryStore, RegistryStore], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[PreparedStatement] = []
    rows = PreparedStatement.rows

    def counted(self: PreparedStatement, *given: Any) -> list[tuple[Any, ...]]:
        asked.append(self)
        return rows(self, *given)

    monkeypatch.setattr(PreparedStatement, "rows", counted)
    asking = registrar(stores[0])
    asking.register("other", FIRST, who="t")
    for name, proposal in (("s", WIDER), ("t", WIDER)):
        asked.clear()
        assert asking.find_registered(name, proposal) is None
        assert len(asked) == 1
    assert asking.add("s", WIDER, who="t")["id"] == 2
    assert len(asked) == 2
    assert asking.add("t", WIDER, who="t")["id"] == 2  # content of another subject, by its id
    assert asking.add("s", WIDER, who="t")["version"] == 1  # somebody was faster
    annotated = replace(WIDER, metadata={"properties": {"owner": "ann"}})
    assert asking.add("u", annotated, who="t")["id"] == 3
    assert asking.add("v", annotated, who="t")["id"] == 3
