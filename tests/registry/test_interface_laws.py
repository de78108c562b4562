"""Laws: names survive being written, types are negotiated as HTTP says, and a catalogue of any
history has one id per schema, consecutive versions and a log of every change."""

from __future__ import annotations

import tempfile
from collections import defaultdict
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    invariant,
    rule,
    run_state_machine_as_test,
)

from headworks._registry.model.definition import Definition
from headworks._registry.model.refusals import ServiceError
from headworks._registry.model.schema_limits import SchemaLimits
from headworks._registry.operations.deleter import Deleter
from headworks._registry.operations.parsed_schemas import SchemaCache
from headworks._registry.operations.reader import RegistryReader
from headworks._registry.operations.registrar import ProposedSchema, Registrar
from headworks._registry.operations.settings import SubjectSettings
from headworks._registry.operations.version_listing import VersionFilter
from headworks._registry.service.middleware import choose_type
from headworks._registry.store import RegistryStore
from headworks._subject import Subject
from tests.registry.postgresql import Cluster
from tests.registry.rest import record, text_of
from tests.tools import needs

pytestmark = pytest.mark.unit

names = st.text(min_size=1).filter(lambda name: not name.startswith((":.", ":*")))
contexts = st.from_regex(r"\A\.[a-z.-]*\Z")


@given(contexts, names)
def test_a_subject_survives_being_written(context: str, name: str) -> None:
    subject = Subject(context, name)
    assert Subject.parse(str(subject)) == subject
    assert Subject.parse(name, within=context) == subject


@given(st.permutations(["application/json", "text/html", "application/xml;q=0.9"]))
def test_the_order_of_accept_means_nothing(types: list[str]) -> None:
    assert choose_type(", ".join(types)) == "application/json"


@given(st.text())
def test_any_accept_is_answered_or_refused(accept: str) -> None:
    assert (choose_type(accept) or "application/").startswith("application/")


@given(st.text(st.characters(codec="utf-8")), st.text(st.characters(codec="utf-8")))
def test_identity_is_the_content(one: str, other: str) -> None:
    assert (Definition(one).digest == Definition(other).digest) == (one == other)
    assert Definition(one).digest != Definition(one, metadata={"properties": {}}).digest


class Catalogue(RuleBasedStateMachine):
    """A registry under any sequence of changes, beside a model in a few dictionaries."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = tempfile.TemporaryDirectory()
        self.database = RegistryStore(self.new_store(), clock=lambda: 1)
        loader = SchemaCache()
        self.registrar = Registrar(self.database, loader, SchemaLimits())
        self.reader = RegistryReader(self.database, loader)
        self.deleter = Deleter(self.database)
        SubjectSettings(self.database).change_config(None, {"compatibility": "NONE"}, who="test")
        self.ids: dict[int, int] = {}
        self.given: set[int] = set()
        self.live: dict[str, dict[int, int]] = defaultdict(dict)
        self.hidden: dict[str, dict[int, int]] = defaultdict(dict)
        self.changes = 1

    def new_store(self) -> str:
        return f"sqlite:///{Path(self.folder.name) / 'r.db'}"

    def teardown(self) -> None:
        self.database.close()
        self.folder.cleanup()

    subjects = st.sampled_from(["a", "b"])
    schemas = st.integers(0, 4)

    @rule(subject=subjects, n=schemas)
    def register(self, subject: str, n: int) -> None:
        found = self.registrar.register(
            subject, ProposedSchema(text_of(record(f"f{n}:int"))), who="t"
        )
        known = [number for number, held in self.live[subject].items() if held == n]
        if known:
            assert found["version"] == max(known)
        else:
            assert found["version"] == max([*self.live[subject], *self.hidden[subject], 0]) + 1
            self.live[subject][found["version"]] = n
            self.changes += 1
        if n in self.ids:
            assert found["id"] == self.ids[n]
        else:
            assert found["id"] not in self.given
            self.ids[n] = found["id"]
            self.given.add(found["id"])

    @rule(subject=subjects)
    def delete(self, subject: str) -> None:
        if self.live[subject]:
            assert self.deleter.delete_subject(subject, permanent=False, who="t") == sorted(
                self.live[subject]
            )
            self.changes += len(self.live[subject])
            self.hidden[subject].update(self.live[subject])
            self.live[subject] = {}
        else:
            self._refused(subject, permanent=False)

    @rule(subject=subjects)
    def delete_for_ever(self, subject: str) -> None:
        if self.live[subject] or not self.hidden[subject]:
            self._refused(subject, permanent=True)
            return
        self.deleter.delete_subject(subject, permanent=True, who="t")
        self.changes += len(self.hidden[subject])
        gone = set(self.hidden.pop(subject).values())
        for other in ("a", "b"):
            gone -= set(self.live[other].values()) | set(self.hidden[other].values())
        for n in gone:
            del self.ids[n]

    @rule(subject=subjects)
    def undelete(self, subject: str) -> None:
        if not self.live[subject] and not self.hidden[subject]:
            return
        self.deleter.undelete_subject(subject, who="t")
        self.changes += len(self.hidden[subject])
        self.live[subject].update(self.hidden.pop(subject, {}))

    def _refused(self, subject: str, *, permanent: bool) -> None:
        with pytest.raises(ServiceError) as refused:
            self.deleter.delete_subject(subject, permanent=permanent, who="t")
        assert refused.value.status == 404

    @invariant()
    def shows_what_was_done(self) -> None:
        assert self.reader.subjects("", VersionFilter()) == sorted(s for s in "ab" if self.live[s])
        for subject in "ab":
            every = {**self.live[subject], **self.hidden[subject]}
            if every:
                shown = self.reader.versions(subject, VersionFilter(deleted=True))
                assert shown == sorted(every)
            for number, n in every.items():
                entity = self.reader.version(subject, number, deleted=True)
                assert entity["id"] == self.ids[n]
                assert self.reader.schema(entity["id"])["schema"] == entity["schema"]
        assert len(self.reader.changes(subject=None, after=0, limit=10_000)) == self.changes


TestCatalogue = Catalogue.TestCase
TestCatalogue.settings = settings(max_examples=15, stateful_step_count=20, deadline=None)


@pytest.mark.contract
@needs("postgresql")
def test_the_catalogue_on_postgresql(cluster: Cluster) -> None:
    class OnPostgreSQL(Catalogue):
        def new_store(self) -> str:
            return cluster.new_store()

    run_state_machine_as_test(
        OnPostgreSQL, settings=settings(max_examples=4, stateful_step_count=20, deadline=None)
    )
