"""The schemas of Iceberg tables, and which old files Iceberg can show as the view does."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from hadoop_loader._iceberg.catalog_url import catalog_properties
from hadoop_loader._iceberg.java_tables import declared_defaults
from hadoop_loader._iceberg.table_schema import NeedsRewriteError, TableSchema, table_schema
from hadoop_loader._tables.field_ids import NO_FIELD_IDS, field_ids
from hadoop_loader._tables.old_rows import SchemaProjection
from headworks.errors import UsageError
from headworks.schema import Schema, parse

pytestmark = pytest.mark.unit
Json = Any
RECORD: Json = {"type": "record", "name": "U", "fields": []}
AT: Json = {"name": "at", "type": {"type": "long", "logicalType": "timestamp-micros"}}


def schema_of(*versions: list[Json], event_time: str | None = None, **given: Any) -> TableSchema:
    """The Iceberg schema after these versions of a record's fields."""
    ids, before, history = NO_FIELD_IDS, None, []
    for i, fields in enumerate(versions, 1):
        governed = {"headworks": {"event_time": event_time}} if event_time else {}
        text = json.dumps({"type": "record", "name": "R", "fields": fields, **governed})
        new: Schema = parse(text)
        ids, before = field_ids(ids, before, new), new
        history.append(SchemaProjection(i, i, new))
    in_utc = {ids.paths[path] for path in given.pop("in_utc", ())}
    ids = replace(ids, local=ids.local - in_utc)
    return table_schema(history, ids, given.pop("declared", {}), **given)


def fields(schema: TableSchema) -> dict[str, Json]:
    return {f["name"]: f for f in json.loads(schema.fields)["fields"]}


def test_columns_have_the_ids_of_the_files_and_types_of_iceberg() -> None:
    found = fields(
        schema_of(
            [
                AT,
                {"name": "_file", "type": "string"},
                {"name": "f", "type": "float", "doc": "how far"},
                {"name": "l", "type": {"type": "array", "items": "long"}},
                {"name": "m", "type": {"type": "map", "values": "bytes"}},
                {
                    "name": "d",
                    "type": {
                        "type": "bytes",
                        "logicalType": "decimal",
                        "precision": 9,
                        "scale": 2,
                    },
                },
            ]
        )
    )
    assert found["at"]["type"] == "timestamptz"
    assert (found["f"]["type"], found["f"]["doc"]) == ("double", "how far")
    assert found["l"]["type"]["element"] == "long"
    assert found["m"]["type"]["value"] == "binary"
    assert found["d"]["type"] == "decimal(9, 2)"
    # Iceberg keeps these names for itself, and no reader needs when a file was written.
    assert found["field_file"]["type"] == "string"
    assert found["_topic_partition"]["type"] == "int"
    assert not {"_file", "_partition", "_written"} & found.keys()
    assert not any(f["required"] for f in found.values())


def test_a_local_timestamp_is_in_no_time_zone_unless_files_have_it_in_utc() -> None:
    local = {"type": "long", "logicalType": "local-timestamp-millis"}
    came, left = {"name": "came", "type": local}, {"name": "left", "type": local, "default": 1}
    found = fields(schema_of([AT, came], [AT, came, left]))
    assert (found["at"]["type"], found["came"]["type"]) == ("timestamptz", "timestamp")
    assert found["left"]["initial-default"] == "1970-01-01T00:00:00.001000"

    # A table of an earlier release, whose later column is in no time zone.
    found = fields(schema_of([AT, came], [AT, came, left], in_utc=("came",)))
    assert (found["came"]["type"], found["left"]["type"]) == ("timestamptz", "timestamp")
    found = fields(schema_of([AT, came], [AT, came, left], in_utc=("came", "left")))
    assert found["left"]["initial-default"] == "1970-01-01T00:00:00.001000+00:00"
    # A rebuild has written its files anew.
    declared = {found["left"]["id"]: found["left"]["initial-default"]}
    found = fields(schema_of([AT, came], [AT, came, left], declared=declared))
    assert found["left"]["initial-default"] == "1970-01-01T00:00:00.001000"
    # An instant that became a wall clock is another field.
    with pytest.raises(NeedsRewriteError, match="column at"):
        schema_of([AT], [{**AT, "type": local}])


def test_a_new_field_has_its_default_in_old_files_and_a_renamed_one_all_its_names() -> None:
    before = [AT, {"name": "who", "type": {"type": "record", "name": "W", "fields": []}}]
    old = [AT, {"name": "n", "type": "int"}]
    new = [
        AT,
        {"name": "count", "type": "long", "aliases": ["n"]},
        {"name": "how", "type": "string", "default": "mouse"},
        {"name": "raw", "type": "bytes", "default": "\u00ff"},
        {"name": "day", "type": {"type": "int", "logicalType": "date"}, "default": 1},
        {"name": "seen", "type": AT["type"], "default": 1_500_000},
    ]
    schema = schema_of(old, new)
    found = fields(schema)
    shown = {name: f.get("initial-default") for name, f in found.items()}
    assert (shown["how"], shown["raw"], shown["day"]) == ("mouse", "ff", "1970-01-02")
    assert shown["seen"] == "1970-01-01T00:00:01.500000+00:00"
    assert shown["count"] is None
    names = {one["field-id"]: one["names"] for one in json.loads(schema.names)}
    assert names[found["count"]["id"]] == ["count", "n"]
    assert ["_written"] in names.values()
    # A column that was dropped is still in files, and has a name there.
    assert ["n"] in [one["names"] for one in json.loads(schema_of(old, [AT]).names)]
    assert schema_of(before, [AT]).last_id >= 9


@pytest.mark.parametrize(
    ("old", "new", "column"),
    [
        ({"type": "int"}, {"type": "double"}, "a"),
        ({"type": "string"}, {"type": "bytes"}, "a"),
        (None, {"type": {"type": "array", "items": "int"}, "default": [1]}, "a"),
        (None, {"type": {**RECORD, "fields": [AT]}, "default": {"at": 1}}, "a"),
        (
            {"type": {"type": "enum", "name": "E", "symbols": ["x", "y"], "default": "x"}},
            {"type": {"type": "enum", "name": "E", "symbols": ["x"], "default": "x"}},
            "a",
        ),
    ],
)
def test_what_iceberg_cannot_show_is_named(old: Json, new: Json, column: str) -> None:
    first = [AT] if old is None else [AT, {"name": "a", **old}]
    with pytest.raises(NeedsRewriteError, match=rf"column {column} of older files"):
        schema_of(first, [AT, {"name": "a", **new}])


def test_a_field_that_came_back_is_another_one_in_iceberg() -> None:
    a = {"name": "a", "type": ["null", "string"], "default": None}
    with pytest.raises(NeedsRewriteError):
        schema_of([AT, a], [AT], [AT, a])


def test_a_default_stays_as_it_was_published() -> None:
    one, two = ({"name": "a", "type": "int", "default": n} for n in (1, 2))
    published = declared_defaults(schema_of([AT], [AT, one]).fields)
    assert 1 in published.values()
    with pytest.raises(NeedsRewriteError, match="column a"):
        schema_of([AT], [AT, two], declared=published)
    # After all files are rewritten, the field still has the default that it was published with.
    assert fields(schema_of([AT, two], declared={9: 1}))["a"]["initial-default"] == 1


def test_a_table_of_format_2_has_no_defaults() -> None:
    a, b = {"name": "a", "type": "int", "default": 1}, {"name": "b", "type": ["null", "int"]}
    with pytest.raises(NeedsRewriteError, match="column a"):
        schema_of([AT], [AT, a], with_defaults=False)
    found = fields(schema_of([AT], [AT, {**b, "default": None}], with_defaults=False))
    assert not any("initial-default" in f for f in found.values())


def test_the_day_is_of_the_event_time_and_else_of_the_record() -> None:
    user = {**RECORD, "fields": [AT]}
    assert schema_of([AT], event_time="at").day_of == "at"
    assert schema_of([{"name": "u", "type": user}], event_time="u.at").day_of == "u.at"
    assert schema_of([AT]).day_of == "_timestamp"


def test_urls_of_catalogs() -> None:
    assert catalog_properties("https://x/y", "file:///w")["type"] == "rest"
    hive = catalog_properties("thrift://x:1", "file:///w")
    assert hive["warehouse"] == "file:///w"
    assert hive["table-default.engine.hive.lock-enabled"] == "false"
    assert catalog_properties("jdbc:sqlite:/x", "file:///w")["uri"] == "jdbc:sqlite:/x"
    assert catalog_properties("glue", "file:///w") == {"type": "glue"}
    with pytest.raises(UsageError, match="'hadoop' is no Iceberg catalog"):
        catalog_properties("hadoop", "file:///w")
