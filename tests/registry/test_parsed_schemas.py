"""Parsed schemas: versions that are alike share their fields, and nothing that could differ."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headworks._registry.model.schema_limits import SchemaLimits
from headworks._registry.operations import parsed_schemas
from headworks._registry.operations.parsed_schemas import ParsedSchema, SchemaCache
from headworks._registry.operations.registrar import ProposedSchema, Registrar
from headworks._registry.store import RegistryStore, schemas
from headworks._subject import Subject
from headworks.compatibility import Finding, Level, Policy, Version, check_level
from headworks.errors import SchemaError
from headworks.schema import Record, Schema, parse
from headworks.schema._canonical import canonical_text, is_same
from headworks.schema._parse import SharedFields
from tests.headworks.compatibility.generate import random_pair
from tests.registry.rest import record, text_of

pytestmark = pytest.mark.unit

kinds = st.sampled_from(
    [
        "long",
        ["null", "string"],
        {"type": "array", "items": {"type": "long", "logicalType": "timestamp-millis"}},
        {"type": "enum", "name": "Colour", "symbols": ["RED"]},
        {"type": "enum", "name": "Colour", "symbols": ["RED", "BLUE"]},
        {"type": "record", "name": "Inner", "fields": [{"name": "a", "type": ["null", "Top"]}]},
        "Colour",
        "Top",
    ]
)
fields = st.fixed_dictionaries(
    {"type": kinds}, optional={"default": st.sampled_from([1, True, 1.0, None]), "doc": st.text()}
)


@given(st.lists(st.tuples(st.sampled_from(["", "a.b"]), st.lists(fields, max_size=4)), max_size=6))
def test_a_shared_field_is_the_field_that_was_written(
    versions: list[tuple[str, list[dict[str, Any]]]],
) -> None:
    shared: SharedFields = {}
    for space, of_version in versions:
        named = [{"name": f"f{i}", **one} for i, one in enumerate(of_version)]
        text = json.dumps({"type": "record", "name": "Top", "namespace": space, "fields": named})
        try:
            alone = parse(text, strict=False)
        except SchemaError:
            continue
        together = parse(text, strict=False, shared=shared)
        assert canonical_text(together) == canonical_text(alone)
        assert _places(cast(Record, together)) == _places(cast(Record, alone))
        for one in cast(Record, together).fields:
            if isinstance(one.type, Record) and one.type.name.endswith("Top"):
                assert one.type is together


def test_shared_fields_change_no_finding() -> None:
    rng = random.Random(7)
    compared = 0
    for _ in range(400):
        new, old = (json.dumps(one) for one in random_pair(rng))
        try:
            alone = parse(new), parse(old, strict=False)
        except SchemaError:
            continue
        shared: SharedFields = {}
        before = parse(old, strict=False, shared=shared)
        after = parse(new, shared=shared)
        compared += any(one.shared for one in after.fields) if isinstance(after, Record) else 0
        for policy in Policy:
            expected = _findings(*alone, policy)
            assert _findings(after, before, policy) == expected, (new, old)
            # With itself, too: there all that can be shared is.
            assert _findings(parse(new, shared=shared), after, policy) == _findings(
                alone[0], parse(new), policy
            )
    assert compared > 40


def _findings(new: Schema, old: Schema, policy: Policy) -> list[Finding]:
    return check_level(new, [Version(1, old)], Level.FULL_TRANSITIVE, policy)


def test_what_is_proposed_is_validated_and_adds_no_shared_field() -> None:
    shared: SharedFields = {}
    wrong = text_of(record("good:int=0", 'bad:int="x"'))
    parse(wrong, strict=False, shared=shared)
    assert len(shared) == 2
    with pytest.raises(SchemaError, match="is not a value of type int"):
        parse(wrong, shared=shared)
    # A valid field is validated once; the same field with a wrong default is another one.
    with pytest.raises(SchemaError, match="is not a value of type int"):
        parse(text_of(record('good:int="x"')), shared=shared)
    right = cast(Record, parse(text_of(record("good:int=0", "other:int=0")), shared=shared))
    assert right.fields[0].validated
    assert [one.shared for one in right.fields] == [True, False]
    assert len(shared) == 2


def test_strict_texts_share_their_fields_if_they_add_them() -> None:
    """As the gate reads the versions of a file: an invalid default stays one."""
    shared: SharedFields = {}
    first = parse(text_of(record("a:int=0", "b:int=0")), shared=shared, adds=True)
    second = parse(text_of(record("a:int=0", "b:int=1")), shared=shared, adds=True)
    assert isinstance(first, Record)
    assert isinstance(second, Record)
    assert [one is other for one, other in zip(first.fields, second.fields, strict=True)] == [
        True,
        False,
    ]
    assert is_same(first, first)
    assert is_same(first, parse(text_of(record("a:int=0", "b:int=0")), shared=shared, adds=True))
    assert is_same(first, parse(text_of(record("a:int=0", "b:int=0"))))
    assert not is_same(first, second)
    assert not is_same(first, parse(text_of(record("a:int=0")), shared=shared, adds=True))
    renamed = text_of({**record("a:int=0", "b:int=0"), "doc": "another"})
    assert not is_same(first, parse(renamed, shared=shared, adds=True))
    for _ in range(2):
        with pytest.raises(SchemaError, match="is not a value of type int"):
            parse(text_of(record('a:int="x"')), shared=shared, adds=True)


def test_a_proposal_takes_the_fields_of_the_newest_version(tmp_path: Path) -> None:
    database = RegistryStore(f"sqlite:///{tmp_path / 'r.db'}")
    Registrar(database, SchemaCache(), SchemaLimits()).register(
        "s", ProposedSchema(text_of(record("a:int=0"))), who="t"
    )
    loader = _Noting()
    registrar = Registrar(database, loader, SchemaLimits())
    proposal = ProposedSchema(text_of(record("a:int=0", "b:int=0")))
    registrar.try_to_add("s", proposal)
    registrar.check("s", proposal, None)
    (parsed,) = loader.parsed  # the check repeats what the dry run has parsed
    with database.read() as connection:
        (stored,) = schemas.versions_of(connection, Subject.parse("s"))
        newest = cast(Record, loader.load(connection, stored.schema))
    assert parsed.fields[0] is newest.fields[0]
    assert parsed.fields[0].shared
    database.close()


def test_a_text_that_is_to_be_registered_adds_its_fields_and_a_checked_one_does_not(
    tmp_path: Path,
) -> None:
    database = RegistryStore(f"sqlite:///{tmp_path / 'r.db'}")
    loader = _Noting()
    registrar = Registrar(database, loader, SchemaLimits())
    registrar.register("one", ProposedSchema(text_of(record("a:int=0"))), who="t")
    registrar.check("none", ProposedSchema(text_of(record("a:int=0", "b:int=0"))), None)
    both = ProposedSchema(text_of(record("a:int=0", "b:int=0", "c:int=0")))
    registrar.register("two", both, who="t")
    registrar.register("three", ProposedSchema(text_of(record("z:int=0", "b:int=0"))), who="t")
    first, checked, second, third = (parsed.fields for parsed in loader.parsed)
    assert checked[0] is second[0] is first[0]
    assert [one.shared for one in checked] == [True, False]
    assert second[1] is third[1]
    assert second[1] is not checked[1]
    database.close()


def test_shared_fields_are_bounded_in_number_and_in_bytes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    database = RegistryStore(f"sqlite:///{tmp_path / 'r.db'}")
    loader = _Noting()
    registrar = Registrar(database, loader, SchemaLimits())

    def register(*names: str) -> list[bool]:
        """Register a schema with these fields twice, and return which the second one shared."""
        texts = [
            text_of(record(*(f"{one}:int=0" for one in names), last)) for last in ("x:int", "y:int")
        ]
        for text in texts:
            registrar.register(f"s{len(loader.parsed)}", ProposedSchema(text), who="t")
        first, second = (parsed.fields for parsed in loader.parsed[-2:])
        return [one is other for one, other in zip(first, second, strict=True)]

    assert register("a", "b", "c") == [True, True, True, False]
    monkeypatch.setattr(parsed_schemas, "_MAX_SHARED_FIELDS", 3)
    assert register("d", "e", "f", "g") == [False, False, False, False, False]
    monkeypatch.undo()
    assert register("h", "i") == [True, True, False]
    monkeypatch.setattr(parsed_schemas, "_MAX_SHARED_BYTES", 20)
    assert register("j" * 30, "k" * 30, "l") == [False, False, False, False]
    database.close()


class _Noting(SchemaCache):
    """A loader that keeps what it parsed."""

    def __init__(self) -> None:
        super().__init__()
        self.parsed: list[Record] = []

    def parse_new(self, *args: Any, **options: Any) -> ParsedSchema:
        made = super().parse_new(*args, **options)
        self.parsed.append(cast(Record, made.schema))
        return made


def _places(top: Record) -> list[tuple[str, str, str]]:
    return [(one.name, one.pointer, one.type.pointer) for one in top.fields]


def test_versions_share_what_they_have_in_common(tmp_path: Path) -> None:
    database = RegistryStore(f"sqlite:///{tmp_path / 'r.db'}")
    registrar = Registrar(database, SchemaCache(), SchemaLimits())
    for n in range(1, 4):
        names = [f"f{i}:int=0" for i in range(n)]
        registrar.register("s", ProposedSchema(text_of(record(*names))), who="t")
    loader = SchemaCache()
    with database.read() as connection:
        stored = schemas.versions_of(connection, Subject.parse("s"))
        one, two, three = (cast(Record, loader.load(connection, v.schema)) for v in stored)
        assert loader.load(connection, stored[0].schema) is one
    assert one.fields[0] is two.fields[0] is three.fields[0]
    assert two.fields[1] is three.fields[1]
    database.close()
