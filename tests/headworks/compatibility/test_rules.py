"""Every case that was measured or met, one row each: reader, writer, the rules found."""

from __future__ import annotations

import json
from typing import Any

import pytest

from hadoop_loader._tables.columns import ddl, table_columns
from headworks.compatibility import RULES, Finding, Policy, check_pair
from headworks.compatibility._columns import TypeLengths
from headworks.schema import Record, parse
from tests.headworks.compatibility.agreement import check_decoding
from tests.headworks.compatibility.oracle import Oracle, compact

pytestmark = pytest.mark.contract

NULLABLE = ["null", "string"]


def record(*fields: Any, name: str = "R", **more: Any) -> Any:
    return {"type": "record", "name": name, "fields": list(fields), **more}


def f(name: str, type_: Any = "int", **more: Any) -> Any:
    return {"name": name, "type": type_, **more}


def enum(*symbols: str, name: str = "E", **more: Any) -> Any:
    return {"type": "enum", "name": name, "symbols": list(symbols), **more}


def logical(kind: str, name: str, **more: Any) -> Any:
    return {"type": kind, "logicalType": name, **more}


def decimal(precision: int, scale: int) -> Any:
    return logical("bytes", "decimal", precision=precision, scale=scale)


NODE = record(f("next", ["null", "R"], default=None))
AVRO: list[tuple[str, Any, Any, list[str]]] = [
    ("the same", record(f("a")), record(f("a")), []),
    ("nullable without default", record(f("a", NULLABLE)), record(), ["HW001"]),
    ("nullable with default", record(f("a", NULLABLE, default=None)), record(), []),
    ("default of a later branch", record(f("a", NULLABLE, default="x")), record(), []),
    ("namespace", record(f("a"), namespace="x"), record(f("a"), namespace="y"), []),
    ("record renamed", record(f("a"), name="S"), record(f("a")), ["HW003"]),
    ("renamed with alias", record(f("a"), name="S", aliases=["R"]), record(f("a")), []),
    (
        "alias qualified by the reader's namespace",
        record(f("a"), name="x.S", aliases=["R"]),
        record(f("a"), name="R"),
        ["HW003"],
    ),
    (
        "alias and old name both there",
        record(f("b", aliases=["a"])),
        record(f("a"), f("b")),
        ["HW007"],
    ),
    ("a field fed by alias", record(f("b", aliases=["a"])), record(f("a")), []),
    ("two fields, one source", record(f("a"), f("b", aliases=["a"])), record(f("a")), []),
    (
        "one simple name twice in a union",
        [record(f("a"), name="x.R"), record(f("a", "string"), name="y.R")],
        [record(f("a"), name="x.R"), record(f("a", "string"), name="y.R")],
        [],
    ),
    ("field default no symbol", record(f("a", enum("A"), default="B")), record(), []),
    ("only an enum default", record(f("a", enum("A", default="A"))), record(), ["HW001"]),
    ("enum symbol removed", enum("A"), enum("A", "B"), ["HW005"]),
    ("removed, with default", enum("A", default="A"), enum("A", "B"), []),
    ("enum symbol added", enum("A", "B"), enum("A"), []),
    ("decimal scale", decimal(9, 3), decimal(9, 2), []),
    ("decimal precision", decimal(11, 2), decimal(9, 2), []),
    ("timestamp unit", logical("long", "timestamp-micros"),
     logical("long", "timestamp-millis"), []),
    ("long to timestamp", logical("long", "timestamp-millis"), "long", []),
    (
        "local timestamp",
        logical("long", "local-timestamp-millis"),
        logical("long", "timestamp-millis"),
        [],
    ),
    ("int to date", logical("int", "date"), "int", []),
    ("time unit", logical("long", "time-micros"), logical("int", "time-millis"), []),
    ("bytes to string", "string", "bytes", []),
    ("string to bytes", "bytes", "string", []),
    ("int to long", "long", "int", []),
    ("int to float", "float", "int", []),
    ("long to double", "double", "long", []),
    ("demotion", "int", "long", ["HW002"]),
    ("union to one type", "string", ["int", "string"], ["HW002"]),
    ("null is new to the reader", "string", ["null", "string"], ["HW002"]),
    ("union narrowed", ["null", "int"], ["null", "int", "string"], ["HW006"]),
    ("union widened", ["null", "int", "string"], ["null", "int"], []),
    ("union of records to one", record(name="A"), [record(name="A"), record(name="B")], ["HW003"]),
    ("empty unions", [], [], []),
    ("into the empty union", [], "int", ["HW006"]),
    ("recursive", NODE, NODE, []),
    (
        "fixed size",
        {"type": "fixed", "name": "F", "size": 4},
        {"type": "fixed", "name": "F", "size": 8},
        ["HW004"],
    ),
    (
        "the cause inside a union",
        ["null", record(f("a"), f("b"))],
        ["null", record(f("a", "string"))],
        ["HW002", "HW001"],
    ),
    ("the cause inside a map", {"type": "map", "values": enum("A")},
     {"type": "map", "values": enum("B")}, ["HW005"]),
]  # fmt: skip


def findings(reader: Any, writer: Any, policy: Policy) -> list[Finding]:
    return check_pair(parse(compact(reader)), parse(compact(writer)), policy)


@pytest.mark.parametrize(
    ("reader", "writer", "rules"), [row[1:] for row in AVRO], ids=[row[0] for row in AVRO]
)
def test_policy_avro(oracle: Oracle, reader: Any, writer: Any, rules: list[str]) -> None:
    assert [one.rule for one in findings(reader, writer, Policy.AVRO)] == rules
    answer = oracle.ask("compatible", compact(reader), compact(writer))
    java = answer[0] == "ok" and answer[1] == "COMPATIBLE"
    assert java == (not rules), answer


STRICT: list[tuple[str, Any, Any, list[str]]] = [
    ("two fields, one source", record(f("a"), f("b", aliases=["a"])), record(f("a")), ["HW101"]),
    (
        "one simple name twice in a union",
        [record(f("a"), name="x.R"), record(f("a"), name="y.R")],
        [record(f("a"), name="x.R")],
        ["HW102"],
    ),
    ("field default no symbol", record(f("a", enum("A"), default="B")), record(), ["HW103"]),
    (
        "default of the wrong length",
        record(f("a", {"type": "fixed", "name": "F", "size": 4}, default="x")),
        record(),
        ["HW103"],
    ),
    (
        "an empty list for a union",
        record(f("a", ["null", {"type": "array", "items": "int"}], default=[])),
        record(),
        ["HW103"],
    ),
    (
        "null after an enum",
        record(f("a", [enum("A"), "null"], default=None)),
        record(),
        ["HW103"],
    ),
    (
        "a number beyond the first type of numbers",
        record(f("a", ["int", "null", "long"], default=2**40)),
        record(),
        ["HW103"],
    ),
    ("a double that is taken for a long", record(f("a", ["long", "double"], default=2.5e10)),
     record(), ["HW103"]),
    ("an int that is taken for a double", record(f("a", ["double", "int"], default=7)),
     record(), []),
    ("decimal scale", decimal(9, 3), decimal(9, 2), ["HW104"]),
    ("decimal precision", decimal(11, 2), decimal(9, 2), ["HW104"]),
    ("timestamp unit", logical("long", "timestamp-micros"),
     logical("long", "timestamp-millis"), ["HW105"]),
    ("int to date", logical("int", "date"), "int", ["HW105"]),
    ("date to a timestamp", logical("long", "timestamp-millis"), logical("int", "date"), ["HW105"]),
    ("uuid read as text", "string", logical("string", "uuid"), []),
    ("bytes to string", "string", "bytes", ["HW106"]),
    (
        "an alias of a living type",
        record(f("a", enum("X", name="A", aliases=["B"])), f("b", enum("X", name="B"))),
        record(f("a", enum("X", name="A")), f("b", enum("X", name="B"))),
        ["HW107"],
    ),
    (
        "an alias that leads to an alias",
        record(f("e", aliases=["d"]), f("d", aliases=["c"])),
        record(f("e"), f("c")),
        ["HW107"],
    ),
    (
        "the same in a record that is renamed",
        record(f("b", default=1, aliases=["d"]), f("d", "null", aliases=["e"]), name="C",
               aliases=["D"]),
        record(f("e", "null"), name="D"),
        ["HW107"],
    ),
    (
        "an alias of a type that leads to an alias",
        record(f("a", enum("X", name="x.C", aliases=["y.C"])), name="x.A", aliases=["x.C"]),
        record(f("a", enum("X", name="y.C")), name="x.A"),
        ["HW107"],
    ),
    (
        "an alias of a type that another takes by its simple name",
        record(f("a", enum("X", name="y.A")), name="x.R", aliases=["x.A"]),
        record(f("a", enum("X", name="x.A")), name="x.R"),
        ["HW107"],
    ),
    (
        "an alias of a type that moved beside one that stayed",
        record(f("a", enum("X", name="x.B", aliases=["x.A"])), f("b", enum("X", name="y.A"))),
        record(f("a", enum("X", name="x.A")), f("b", enum("X", name="y.A"))),
        [],
    ),
    (
        "a record and an enum of one simple name in a union",
        ["null", record(f("a"), name="x.N"), enum("X", name="y.N")],
        record(f("a"), name="x.N"),
        ["HW102"],
    ),
    (
        "an alias of one simple name with another branch",
        [{"type": "fixed", "name": "x.D", "size": 1}, enum("X", name="y.C", aliases=["y.D"])],
        enum("X", name="y.D"),
        ["HW102"],
    ),
    ("an enum of a union moved", ["null", enum("X", name="x.E")], enum("X", name="y.E"), ["HW109"]),
    (
        "an enum of a union moved, with an alias",
        ["null", enum("X", name="x.E", aliases=["y.E"])],
        ["null", enum("X", name="y.E")],
        [],
    ),
    ("a record of a union moved", ["null", record(f("a"), name="x.R")],
     record(f("a"), name="y.R"), []),
    (
        "a field alias under another namespace",
        record(f("b", aliases=["a"]), name="y.R"),
        record(f("a"), name="x.R"),
        ["HW108"],
    ),
]  # fmt: skip


@pytest.mark.parametrize(
    ("reader", "writer", "rules"), [row[1:] for row in STRICT], ids=[row[0] for row in STRICT]
)
def test_policy_strict(oracle: Oracle, reader: Any, writer: Any, rules: list[str]) -> None:
    """Each row is what Java passes; where strict passes too, both decoders must agree."""
    assert findings(reader, writer, Policy.AVRO) == []
    assert [one.rule for one in findings(reader, writer, Policy.STRICT)] == rules
    pair = compact(reader), compact(writer)
    assert oracle.ask("compatible", *pair)[:2] == ["ok", "COMPATIBLE"]
    assert check_decoding(oracle, [pair]).broken == []


TABLE: list[tuple[str, Any, Any, list[str]]] = [
    ("int to bigint", "long", "int", []),
    ("int to float, stored as double", "float", "int", []),
    ("float to double, both double", "double", "float", []),
    ("bigint to double", "double", "long", ["HW201"]),
    ("bigint to float, stored as double", "float", "long", ["HW201"]),
    ("a nullable one", ["null", "double"], ["null", "long"], ["HW201"]),
    ("string to binary", "bytes", "string", []),
    ("long to timestamp", logical("long", "timestamp-millis"), "long", ["HW105", "HW201"]),
    ("decimal that keeps its digits", decimal(11, 4), decimal(9, 2), ["HW104", "HW201"]),
    ("decimal that loses digits", decimal(9, 3), decimal(9, 2), ["HW104", "HW201"]),
    ("becomes nullable", ["null", "int"], "int", []),
    ("becomes a union", ["null", "int", "string"], ["null", "int"], ["HW204"]),
    ("a branch at the end", ["null", "int", "string", "boolean"], ["null", "int", "string"], []),
    ("a branch in the middle", ["int", "boolean", "string"], ["int", "string"], ["HW204"]),
    ("int and long are one number", ["int", "long"], "int", []),
    ("inside an array", {"type": "array", "items": "double"},
     {"type": "array", "items": "long"}, ["HW201"]),
]  # fmt: skip


@pytest.mark.parametrize(
    ("new", "old", "rules"), [row[1:] for row in TABLE], ids=[row[0] for row in TABLE]
)
def test_policy_warehouse_on_a_column(new: Any, old: Any, rules: list[str]) -> None:
    found = findings(record(f("a", new)), record(f("a", old)), Policy.WAREHOUSE)
    assert [one.rule for one in found] == rules
    assert all(one.path.startswith("a") for one in found)


def test_policy_warehouse_on_columns() -> None:
    def added(field: Any) -> list[str]:
        new = record(f("a"), {**field, "default": field.get("default", 0)})
        return [one.rule for one in findings(new, record(f("a")), Policy.WAREHOUSE)]

    assert added(f("b")) == []
    assert added(f("A")) == ["HW202"]
    assert added(f("_offset")) == ["HW206"]
    assert added(f("t", ["null", "R"], default=None)) == ["HW203"]
    renamed = findings(record(f("b", aliases=["a"])), record(f("a")), Policy.WAREHOUSE)
    assert [one.rule for one in renamed] == ["HW205"]
    nested = record(f("a", record(f("x"), f("X", default=0), name="N")))
    before = record(f("a", record(f("x"), name="N")))
    assert [one.rule for one in findings(nested, before, Policy.WAREHOUSE)] == ["HW202"]
    removed = findings(record(), record(f("a")), Policy.WAREHOUSE)
    assert removed == []


def test_policy_warehouse_on_what_a_metastore_stores() -> None:
    def wide(characters: int) -> Any:
        """A record whose column type has a text of so many characters."""
        return record(f("b" * (characters - len("struct<:int>")), default=0), name="N")

    def rules(new: Any, old: Any) -> list[str]:
        return [one.rule for one in findings(new, old, Policy.WAREHOUSE)]

    before = record(f("a", wide(100)))
    assert rules(record(f("n" * 767, default=0)), before) == []
    assert rules(record(f("n" * 768, default=0)), before) == ["HW207"]
    assert rules(record(f("n" * 768, default=0)), record(f("n" * 768))) == [], "it had it before"
    assert rules(record(f("a", wide(32_672))), record(f("a", record(name="N")))) == []
    assert rules(record(f("a", wide(32_673))), record(f("a", record(name="N")))) == ["HW207"]
    nested = {"type": "map", "values": ["null", {"type": "array", "items": wide(32_654)}]}
    new = record(f("a"), f("m", nested, default={}))
    (found,) = findings(new, record(f("a")), Policy.WAREHOUSE)
    assert found.message == (
        "The table cannot follow: the column's type has a text of 32,673 characters, and a "
        "metastore takes 32,672 (field m)"
    )


@pytest.mark.parametrize(
    "kind",
    [
        ["int", "string", {"type": "enum", "name": "x.y.E", "symbols": ["A"]}],
        ["null", "long", "int"],
        record(name="Empty"),
        {"type": "fixed", "size": 12, "name": "D", "logicalType": "duration"},
        logical("long", "local-timestamp-micros"),
        decimal(9, 2),
        decimal(60, 2),
        {
            "type": "map",
            "values": {"type": "array", "items": record(f("b"), f("c", "float"), name="N")},
        },
    ],
)
def test_the_measured_text_of_a_column_type_is_the_one_that_tables_have(kind: Any) -> None:
    schema = parse(json.dumps(record(f("a", kind))), strict=False)
    assert isinstance(schema, Record)
    text = ddl(table_columns(schema)[0].type).replace("`", "")
    assert TypeLengths().of(schema.fields[0].type) == len(text)


def test_every_rule_is_met_by_a_row() -> None:
    met = {rule for rows in (AVRO, STRICT, TABLE) for row in rows for rule in row[3]}
    met |= {"HW202", "HW203", "HW205", "HW206", "HW207"}
    assert met == set(RULES)


def test_findings_name_the_reader_the_data_and_the_place() -> None:
    reader = record(f("n", record(f("late", ["null", "int"]), name="N")))
    writer = record(f("n", record(f("lat", "int"), name="N")))
    (found,) = findings(reader, writer, Policy.AVRO)
    assert found.path == "n.late"
    assert found.reader_pointer == "/fields/0/type/fields/0"
    assert found.writer_pointer == "/fields/0/type/fields"
    assert found.kind == "READER_FIELD_MISSING_DEFAULT_VALUE"
    assert 'add "default": null' in found.fix
    assert '"aliases": ["lat"]' in found.fix
    assert Finding.from_dict(json.loads(json.dumps(found.as_dict()))) == found
