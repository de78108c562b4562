"""The fix of a finding, followed to the letter, is never refused for the same change again."""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from headworks.compatibility import Finding, Level, Policy, Version, check_level
from headworks.compatibility._wording import has_path
from headworks.errors import SchemaError
from headworks.schema import parse

pytestmark = pytest.mark.unit

Json = dict[str, Any]


def record(*fields: Json, name: str = "Order", **more: Any) -> Json:
    return {"type": "record", "name": name, "namespace": "acme", "fields": list(fields), **more}


def f(name: str, type_: Any = "int", **more: Any) -> Json:
    return {"name": name, "type": type_, **more}


def enum(*symbols: str, **more: Any) -> Json:
    return {"type": "enum", "name": "Color", "namespace": "acme", "symbols": [*symbols], **more}


def logical(kind: str, name: str, **more: Any) -> Json:
    return {"type": kind, "logicalType": name, **more}


ID = f("id", "long")
FIXED = {"type": "fixed", "name": "Hash", "namespace": "acme", "size": 4}
NESTED = record(f("zip", "string"), f("at", logical("long", "timestamp-millis")), name="Address")
LARGE = record(*(f(f"n{i}", "string") for i in range(80)), name="Large")
NODE = record(f("next", ["null", "acme.Node"]), name="Node")
# A name, the schema in use, and a change that some policy refuses.
CHANGES: list[tuple[str, Json, Json]] = [
    ("rename", record(ID, f("first_name", "string")), record(ID, f("given_name", "string"))),
    ("rename with alias", record(f("a")), record(f("b", aliases=["a"]))),
    ("nullable without default", record(ID), record(ID, f("gate", ["null", "string"]))),
    ("value first", record(ID), record(ID, f("gate", ["string", "null"]))),
    ("record without default", record(ID), record(ID, f("home", NESTED))),
    ("enum without default", record(ID), record(ID, f("color", enum("RED", "BLUE")))),
    ("fixed without default", record(ID), record(ID, f("hash", FIXED))),
    ("bytes without default", record(ID), record(ID, f("raw", "bytes"))),
    ("array without default", record(ID), record(ID, f("all", {"type": "array", "items": "int"}))),
    ("large without default", record(ID), record(ID, f("large", LARGE))),
    ("recursive without default", record(ID), record(ID, f("node", NODE))),
    (
        "inside a record",
        record(f("home", record(f("street", "string"), name="Home"))),
        record(f("home", record(f("street", "string"), f("zip", "string"), name="Home"))),
    ),
    ("field removed", record(ID, f("a", "string")), record(ID)),
    ("symbol removed", record(f("c", enum("A", "B"))), record(f("c", enum("A")))),
    ("symbol added", record(f("c", enum("A"))), record(f("c", enum("A", "B")))),
    ("demotion", record(f("n", "long")), record(f("n", "int"))),
    ("promotion", record(f("n", "int")), record(f("n", "float"))),
    ("null taken away", record(f("n", ["null", "int"])), record(f("n", "int"))),
    (
        "branch taken away",
        record(f("n", ["null", "int", "string"])),
        record(f("n", ["null", "int"])),
    ),
    ("branch added", record(f("n", ["null", "int"])), record(f("n", ["null", "int", "string"]))),
    (
        "unit of time",
        record(f("at", logical("long", "timestamp-millis"))),
        record(f("at", logical("long", "timestamp-micros"))),
    ),
    (
        "scale",
        record(f("price", logical("bytes", "decimal", precision=9, scale=2))),
        record(f("price", logical("bytes", "decimal", precision=9, scale=4))),
    ),
    ("bytes to text", record(f("raw", "bytes")), record(f("raw", "string"))),
    ("fixed size", record(f("hash", FIXED)), record(f("hash", {**FIXED, "size": 8}))),
    (
        "one source, two fields",
        record(f("a")),
        record(f("a"), f("b", aliases=["a"])),
    ),
    ("name and alias", record(f("a"), f("b")), record(f("b", aliases=["a"]))),
    ("reserved column", record(ID), record(ID, f("_offset", "long", default=0))),
    ("case", record(f("a")), record(f("a"), f("A", default=0))),
]  # fmt: skip
LEVELS = (Level.BACKWARD_TRANSITIVE, Level.FULL)


def refusals(new: Json, old: Json, level: Level, policy: Policy) -> list[Finding]:
    return check_level(parse(json.dumps(new)), [Version(1, parse(json.dumps(old)))], level, policy)


def _identities(found: list[Finding]) -> set[tuple[str, str]]:
    return {(one.rule, one.path) for one in found}


def _fields(schema: Json, path: str) -> tuple[list[Json], str]:
    """The list of fields that holds the one at `path`, and its name there."""
    *around, last = path.split(".")
    fields = schema["fields"]
    for step in around:
        fields = next(one for one in fields if one["name"] == step)["type"]["fields"]
    return fields, last


def _followed(finding: Finding, new: Json, old: Json) -> Iterator[tuple[str, Json]]:
    """Every way to follow the fix of a finding, as a schema; an unknown phrase fails the test."""
    fix, path = finding.fix, finding.path
    done = 0
    for pattern, mend in PHRASES:
        found = re.search(pattern, fix)
        if found is not None:
            done += 1
            mended = copy.deepcopy(new)
            mend(mended, copy.deepcopy(old), path, found)
            yield found[0], mended
    assert done, f"no way is known to follow {fix!r}"


def _field(schema: Json, path: str, name: str | None = None) -> Json:
    fields, last = _fields(schema, path)
    return next(one for one in fields if one["name"] == (name or last))


def _add_default(new: Json, _old: Json, path: str, found: re.Match[str]) -> None:
    value, _ = json.JSONDecoder().raw_decode(found.string[found.end() :])
    _field(new, path)["default"] = value


def _make_nullable(new: Json, _old: Json, path: str, _found: re.Match[str]) -> None:
    one = _field(new, path)
    one |= {"type": ["null", one["type"]], "default": None}


def _add_alias(new: Json, _old: Json, path: str, found: re.Match[str]) -> None:
    _field(new, path)["aliases"] = [found[1]]


def _keep_name(new: Json, _old: Json, path: str, found: re.Match[str]) -> None:
    one = _field(new, path)
    one["name"] = found[1]
    if "without the alias" in found.string:
        one.pop("aliases")


def _keep_as_text(new: Json, _old: Json, path: str, _found: re.Match[str]) -> None:
    one = _field(new, path)
    one |= {"type": "string", "default": ""}


def _keep_renamed(new: Json, _old: Json, path: str, found: re.Match[str]) -> None:
    fields, _ = _fields(new, path)
    one = next(one for one in fields if found[1] in one.get("aliases", ()))
    one["name"] = found[1]
    one.pop("aliases")


def _restore(new: Json, old: Json, path: str, _found: re.Match[str]) -> None:
    fields, last = _fields(new, path)
    kept = copy.deepcopy(_field(old, path))
    place = next((i for i, one in enumerate(fields) if one["name"] == last), len(fields))
    fields[place : place + 1] = [kept]


def _add_beside(new: Json, old: Json, path: str, found: re.Match[str]) -> None:
    fields, last = _fields(new, path)
    type_ = _field(new, path)["type"]
    if "..." in found.string:  # a type with a name is not written out
        written = ["null", {**type_, "name": f"{type_['name']}New"}]
    else:
        written, _ = json.JSONDecoder().raw_decode(found.string[found.end() :])
        assert found.string.endswith('and "default": null')
    _restore(new, old, path, found)
    fields.append({"name": f"{last}_new", "type": written, "default": None})


def _keep_and_add(new: Json, old: Json, path: str, found: re.Match[str]) -> None:
    one = _field(new, path, found[1])
    one.pop("aliases")
    one["default"], _ = json.JSONDecoder().raw_decode(found.string[found.end() :])
    fields, _ = _fields(new, path)
    fields[:0] = [one for one in old["fields"] if one["name"] not in [f["name"] for f in fields]]


def _keep_beside(new: Json, old: Json, path: str, found: re.Match[str]) -> None:
    _field(new, path)["default"], _ = json.JSONDecoder().raw_decode(found.string[found.end() :])
    fields, _ = _fields(new, path)
    fields.append(_field(old, found[1]))


def _restore_with_default(new: Json, old: Json, path: str, found: re.Match[str]) -> None:
    _restore(new, old, path, found)
    one = _field(new, path)
    one.pop("aliases", None)
    one["default"], _ = json.JSONDecoder().raw_decode(found.string[found.end() :])


def _keep_symbols(new: Json, old: Json, path: str, _found: re.Match[str]) -> None:
    _field(new, path)["type"]["symbols"] = _field(old, path)["type"]["symbols"]


def _default_symbol(new: Json, _old: Json, path: str, found: re.Match[str]) -> None:
    _field(new, path)["type"]["default"] = found[1]


def _allow_null(new: Json, old: Json, path: str, _found: re.Match[str]) -> None:
    one = _field(new, path)
    one["type"] = ["null", one["type"]]


def _drop_alias(new: Json, old: Json, path: str, found: re.Match[str]) -> None:
    _field(new, path or found[2], found[2]).pop("aliases")
    default = re.search('and add "default": (.+) to it', found.string)
    if default is not None:
        _field(new, path or found[2], found[2])["default"] = json.loads(default[1])


def _remove_aliases(new: Json, _old: Json, path: str, found: re.Match[str]) -> None:
    one = _field(new, path or found[1], found[1])
    one.pop("aliases")
    if "give it a default" in found.string:
        one["default"] = 0


def _other_name(new: Json, _old: Json, path: str, found: re.Match[str]) -> None:
    fields, last = _fields(new, path)
    next(one for one in fields if one["name"] == (found[1] or last))["name"] = "quite_new"


Mend = Callable[[Json, Json, str, re.Match[str]], None]
PHRASES: list[tuple[str, Mend]] = [
    ('^add "default": (?!null, with)', _add_default),
    ("^flatten it to the depth", _keep_as_text),
    (r'add "type": \["null", .* and "default": null', _make_nullable),
    ('add "aliases": \\["(.+?)"\\]', _add_alias),
    ('keep the name "([^"]+)"(?!, without the alias, with)', _keep_name),
    ('or keep ".+", with "type": .+, and add "(.+?)" beside it, with "default": ', _keep_and_add),
    ('if it is the new name of "[^"]+", keep "([^"]+)", with', _keep_name),
    ('if it is the new name of "([^"]+)", keep .* beside it, add "default": ', _keep_beside),
    ('If it is new(?: or beside it)?, add "default": ', _add_default),
    ('^keep "(.+?)", with "type"', _restore),
    ('^keep ".+?", with .* To remove it later, first add "default": ', _restore_with_default),
    ('^keep the name "(.+?)", without the alias, with', _keep_renamed),
    (r"^keep (the type|the size \d+|that branch|the branches)", _restore),
    ('add a new field with "type": ', _add_beside),
    ('^keep "[^"]+"(?:, or add|$)', _keep_symbols),
    ('add "default": "(.+?)" \\(or another symbol\\) to the enum itself', _default_symbol),
    ("^add a symbol only when", _keep_symbols),
    ("^allow null", _allow_null),
    ("^do not let the value become null", _restore),
    ("^do not add it to the union", _restore),
    ('drop the alias "(.+?)" of "(.+?)"', _drop_alias),
    ('remove the aliases of "(.+?)"', _remove_aliases),
    ('^give (?:the field|"(.+?)") another name', _other_name),
]


@pytest.mark.parametrize("policy", list(Policy))
@pytest.mark.parametrize(
    ("old", "new"), [row[1:] for row in CHANGES], ids=[row[0] for row in CHANGES]
)
def test_a_followed_fix_is_not_refused_again(old: Json, new: Json, policy: Policy) -> None:
    for level in LEVELS:
        found = refusals(new, old, level, policy)
        for one in found:
            for phrase, mended in _followed(one, new, old):
                try:
                    left = _identities(refusals(mended, old, level, policy))
                except SchemaError as error:
                    pytest.fail(f"{phrase!r} of {one.rule} is no schema: {error}")
                others = _identities(found) - {(one.rule, one.path)}
                assert left <= others, f"{level}: {phrase!r} of {one.rule}, from {one.fix!r}"


def test_each_change_is_refused_by_some_policy() -> None:
    for name, old, new in CHANGES:
        assert any(refusals(new, old, level, Policy.WAREHOUSE) for level in LEVELS), name


def test_a_name_of_an_older_version_is_not_to_be_kept() -> None:
    """Neither way of the usual advice is open: the last version has no such field to keep."""
    had = record(ID, f("home", record(f("size"), f("lid", "boolean"), name="Home")))
    has_not = record(ID, f("home", record(f("size"), name="Home")))
    again = record(ID, f("home", record(f("size"), f("lid", "string", default=""), name="Home")))
    history = [Version(n, parse(json.dumps(one))) for n, one in enumerate([had, has_not], 1)]
    for level in (Level.BACKWARD_TRANSITIVE, Level.FULL_TRANSITIVE):
        for policy in Policy:
            found = check_level(parse(json.dumps(again)), history, level, policy)
            of_type = [one for one in found if one.rule in ("HW002", "HW201")]
            assert of_type
            for one in of_type:
                assert one.fix.startswith('give the new field another name: "lid"')
    renamed = copy.deepcopy(again)
    _field(renamed, "home.lid")["name"] = "lid_text"
    assert not check_level(
        parse(json.dumps(renamed)), history, Level.BACKWARD_TRANSITIVE, Policy.WAREHOUSE
    )


@pytest.mark.parametrize(
    "inner",
    [
        lambda type_: {"type": "array", "items": type_},
        lambda type_: {"type": "map", "values": type_},
        lambda type_: ["null", {"type": "array", "items": ["null", type_]}],
    ],
)
def test_a_name_inside_items_and_values_is_found(inner: Callable[[Json], Json]) -> None:
    """It is in the last version, so it can be kept; and the new field is not of the list's type."""
    versions = [
        record(f("all", inner(record(f("n", kind), name="One")))) for kind in ("long", "int")
    ]
    history = [Version(n, parse(json.dumps(versions[0]))) for n in (1, 2)]
    found = check_level(parse(json.dumps(versions[1])), history, Level.FULL_TRANSITIVE)
    assert {one.fix for one in found if one.rule == "HW002"} == {
        'keep the type "long", and add a new field with "type": ["null", "int"] and "default": null'
    }


def test_a_path_through_recursive_types_is_followed_at_once() -> None:
    """Without care, the types to look at would double with each of its names."""
    a = record(f("next", ["acme.B", "acme.A"]), name="A")
    b = record(f("next", ["acme.A", "acme.B"]), f("end"), name="B")
    schema = parse(json.dumps(record(f("next", [{**a, "fields": [f("next", [b, "acme.A"])]}]))))
    assert has_path(schema, ".".join(["next"] * 200 + ["end"]))
    assert not has_path(schema, ".".join(["next"] * 200 + ["start"]))


def test_a_new_type_of_items_is_not_written_out() -> None:
    new, old = (record(f("all", {"type": "array", "items": kind})) for kind in ("int", "long"))
    (found,) = refusals(new, old, Level.BACKWARD, Policy.AVRO)
    assert found.fix.startswith(
        'keep the type "long", and add a new field, with "null" first in its type'
    )


def test_an_empty_default_is_no_decimal() -> None:
    """Java makes a number of its bytes, of which there must be one."""
    decimal = logical("bytes", "decimal", precision=9, scale=2)
    for default, rules in (("", ["HW103"]), ("\0", [])):
        new = record(ID, f("price", decimal, default=default))
        found = refusals(new, record(ID), Level.BACKWARD, Policy.STRICT)
        assert [one.rule for one in found] == rules
        assert not refusals(new, record(ID), Level.BACKWARD, Policy.AVRO)


def test_a_wrong_default_is_answered_with_a_right_one() -> None:
    with pytest.raises(SchemaError) as raised:
        parse(json.dumps(record(f("lid", "boolean", default=""))))
    assert raised.value.fix == "give a default of the field's type, such as false"
    decimal = logical("bytes", "decimal", precision=9, scale=2)
    with pytest.raises(SchemaError) as raised:
        parse(json.dumps(record(f("price", decimal, default=0))))
    assert str(raised.value.fix).startswith(
        'give a default of the field\'s type, such as "\\u0000"'
    )


def test_defaults_are_written_out_whole() -> None:
    (found,) = refusals(record(ID, f("home", NESTED)), record(ID), Level.BACKWARD, Policy.WAREHOUSE)
    assert found.fix == 'add "default": {"zip": "", "at": 0} to "home"'
    (found,) = refusals(record(ID, f("hash", FIXED)), record(ID), Level.BACKWARD, Policy.STRICT)
    assert found.fix == 'add "default": "\\u0000\\u0000\\u0000\\u0000" to "hash"'


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("strin", "string"),
        ("String", "string"),
        ("integer", "int"),
        ("bool", "boolean"),
        ("Leg", "trips.Leg"),
        ("trips.Legg", "trips.Leg"),
    ],
)
def test_a_mistyped_type_is_guessed(name: str, meant: str) -> None:
    leg = {"type": "record", "name": "trips.Leg", "fields": [f("n")]}
    with pytest.raises(SchemaError) as raised:
        parse(json.dumps(record(f("leg", leg), f("wrong", name))))
    assert f'did you mean "{meant}"?' in str(raised.value.fix)


def test_an_unlike_name_is_not_guessed() -> None:
    with pytest.raises(SchemaError) as raised:
        parse(json.dumps(record(f("wrong", "Customer"))))
    assert "did you mean" not in str(raised.value.fix)
