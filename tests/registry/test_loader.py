"""Parsed schemas: versions that are alike share their fields, and nothing that could differ."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, cast

from hypothesis import given
from hypothesis import strategies as st

from headworks.errors import SchemaError
from headworks.schema import Record, parse
from headworks.schema.canonical import canonical_text
from headworks.schema.parse import SharedFields
from registry.catalog.loader import Loader
from registry.catalog.registrar import Proposal, Registrar
from registry.model.shape import SchemaLimits
from registry.model.subject import Subject
from registry.store import Database, schemas
from tests.registry.rest import record, text_of

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


def _places(top: Record) -> list[tuple[str, str, str]]:
    return [(one.name, one.pointer, one.type.pointer) for one in top.fields]


def test_versions_share_what_they_have_in_common(tmp_path: Path) -> None:
    database = Database(f"sqlite:///{tmp_path / 'r.db'}")
    registrar = Registrar(database, Loader(), SchemaLimits())
    for n in range(1, 4):
        names = [f"f{i}:int=0" for i in range(n)]
        registrar.register("s", Proposal(text_of(record(*names))), who="t")
    loader = Loader()
    with database.read() as connection:
        stored = schemas.versions_of(connection, Subject.parse("s"))
        one, two, three = (cast(Record, loader.load(connection, v.schema)) for v in stored)
        assert loader.load(connection, stored[0].schema) is one
    assert one.fields[0] is two.fields[0] is three.fields[0]
    assert two.fields[1] is three.fields[1]
    database.close()
