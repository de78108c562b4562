"""The printed forms, character for character against Avro Java."""

from __future__ import annotations

import json
import random

import pytest

from headworks.errors import SchemaError
from headworks.schema import parse
from headworks.schema._canonical import canonical_text, fingerprint, normalized_text, structure_text
from headworks.schema._model import named_types
from tests.headworks.compatibility.agreement import check_texts
from tests.headworks.compatibility.generate import random_pair
from tests.headworks.compatibility.oracle import Oracle, compact

pytestmark = pytest.mark.unit

ODD = r"""
{"type":"bytes","logicalType":"decimal","precision":4,"zz":null,"scale":2,"doc":"x","default":3}
{"type":"record","name":"R","fields":[{"name":"x","type":{"type":"record","name":"Q","doc":"1","fields":[]}},{"name":"y","type":{"type":"record","name":"Q","doc":"2","fields":[]}}]}
{"type":"record","name":"R","fields":[{"name":"x","type":{"type":"record","name":"Q","fields":[]}},{"name":"y","type":{"type":"record","name":"Q","p":1,"fields":[]}}]}
{"type":"enum","name":"E","symbols":["A"],"default":3,"fields":1,"zz":{"b":1,"a":2}}
{"type":"enum","name":"E","symbols":["A"],"default":"B"}
{"type":"enum","name":"E","symbols":["A",3]}
{"type":"record","name":"R","fields":[{"name":"x","type":{"type":"record","name":"a.array","doc":3,"fields":[]},"order":"Descending"},{"name":"y","type":"a.array","doc":4,"q":1}]}
{"type":"record","name":"a.b.R","namespace":"zzz","fields":[{"name":"x","type":{"type":"fixed","name":"F","namespace":"","size":0}},{"name":"y","type":"F"}]}
{"type":"record","name":"string","fields":[]}
{"type":"record","name":"a.string","fields":[]}
{"type":"record","name":"R","namespace":"a-b","fields":[]}
{"type":"record","name":"R","namespace":"a..b","fields":[]}
{"type":"record","name":".R","fields":[]}
{"type":"record","name":"R","fields":[{"name":"x","type":"int","default":1.0}]}
{"type":"record","name":"R","fields":[{"name":"x","type":"float","default":"1.5"}]}
{"type":"record","name":"R","fields":[{"name":"x","type":"double","default":"NaN"}]}
{"type":"record","name":"R","fields":[{"name":"x","type":"float","default":"zz"}]}
{"type":"record","name":"R","fields":[{"name":"x","type":["double","null"],"default":"1.5"}]}
{"type":"record","name":"R","fields":[{"name":"x","type":"int","aliases":["a","a","b c"]}]}
{"type":"record","name":"R","fields":[{"name":"x","type":"int","aliases":"zz"}]}
{"type":"record","name":"R","aliases":["a.b","Q"],"namespace":"a","fields":[/* a comment */]}
{"type":"record","name":"R","fields":[]} x
{"type":"int","x":"\u0001\u001f/\u007f\n","y":[1.0,1e2,12345678.9,0.001,0.0009,1e7,9999999.0,-0.0,1e-7,1.5e300]}
"string"
string
["null","null"]
["int",["null"]]
[]
{"type":{"type":"int"}}
{"type":"map","values":{"type":["int"]}}
{"type":"array","items":["int"],"values":3,"default":[]}
{"type":"record","name":"R","fields":[{"name":"x","type":"R"},{"name":"y","type":"Z"}]}
{"type":"error","name":"R","fields":[{"name":"x","type":{"type":"R","q":1}}]}
{"type":"record","name":"R","fields":[{"name":"x","type":"int","default":null}]}
{"type":"fixed","name":"F","size":-1}
{"type":"fixed","name":"F","size":3.5}
{"type":"record","name":"R","fields":[{"name":"x","type":"int","order":"bad"}]}
{"type":"record","name":"R","fields":[{"name":"x","type":"int"},{"name":"x","type":"int"}]}
{"type":"record","name":"R","namespace":3,"fields":[]}
{"type":"record","name":"R","fields":[],"x":NaN}
{"type":"record","name":"Ñandú","fields":[{"name":"日","type":"int"}]}
{"type":"record","name":"n.A","fields":[{"name":"a","type":{"type":"enum","name":"A","namespace":"","symbols":[]}},{"name":"d","type":"A"}]}
""".strip().split("\n")


@pytest.mark.contract
def test_odd_texts(oracle: Oracle) -> None:
    assert check_texts(oracle, ODD) == []


@pytest.mark.contract
def test_generated_texts(oracle: Oracle) -> None:
    rng = random.Random(30)
    texts = [compact(one) for _ in range(500) for one in random_pair(rng)]
    assert check_texts(oracle, texts) == []


def test_canonical_text_is_a_fixed_point() -> None:
    rng = random.Random(31)
    for _ in range(500):
        for one in random_pair(rng):
            try:
                schema = parse(one)
            except SchemaError:
                continue
            text = canonical_text(schema)
            if any("." not in node.name for node in named_types(schema)):
                continue  # inside a namespace, a name without one cannot always be told apart
            assert canonical_text(parse(text)) == text
            assert normalized_text(parse(normalized_text(schema))) == normalized_text(schema)


def test_normalized_text_ignores_the_order_of_attributes() -> None:
    left = parse('{"type":"record","name":"R","b":1,"a":2,"aliases":["Y","X"],"fields":[]}')
    right = parse('{"name":"R","a":2,"b":1,"aliases":["X","Y"],"type":"record","fields":[]}')
    assert canonical_text(left) != canonical_text(right)
    assert normalized_text(left) == normalized_text(right)


def test_fingerprint_tells_docs_apart() -> None:
    with_doc = parse('{"type":"record","name":"R","doc":"d","fields":[]}')
    without = parse('{"type":"record","name":"R","fields":[]}')
    assert len(fingerprint(with_doc)) == 64
    assert fingerprint(with_doc) != fingerprint(without)
    assert structure_text(with_doc) == structure_text(without)


@pytest.mark.parametrize("depth", [100, 121, 5000, 100_000])
def test_nesting_is_bounded(depth: int) -> None:
    text = '{"type":"array","items":' * depth + '"int"' + "}" * depth
    if depth <= 120:
        assert canonical_text(parse(text)) == text
        return
    with pytest.raises(SchemaError) as caught:
        parse(text)
    assert caught.value.rule == "depth"


@pytest.mark.parametrize(
    ("text", "pointer", "words"),
    [
        (
            '{"type":"record","name":"R","fields":[{"name":"a-b","type":"int"}]}',
            "/fields/0/name",
            "field name",
        ),
        (
            '{"type":"record","name":"R","fields":[{"name":"a","type":"X"}]}',
            "/fields/0/type",
            "not defined",
        ),
        (
            '{"type":"record","name":"R","fields":[{"name":"a","type":"int","default":"x"}]}',
            "/fields/0/default",
            "not a value",
        ),
        ("{", "", "not JSON"),
        ("", "", "empty"),
        ("string", "", 'write "string", in quotes'),
        ('{"type":"record","name":"R"}', "", "`fields` is missing"),
    ],
)
def test_refusals_name_the_place(text: str, pointer: str, words: str) -> None:
    with pytest.raises(SchemaError) as caught:
        parse(text)
    assert caught.value.pointer == pointer
    assert words in str(caught.value)


def test_references_resolve_and_pointers_name_the_document() -> None:
    leg = parse('{"type":"record","name":"a.Leg","fields":[]}', base="leg.avsc#")
    assert not isinstance(leg, str)
    text = json.dumps(
        {"type": "record", "name": "a.Trip", "fields": [{"name": "l", "type": "Leg"}]}
    )
    trip = parse(text, references={"a.Leg": leg}, base="trip.avsc#")  # type: ignore[dict-item]
    assert canonical_text(trip) == (
        '{"type":"record","name":"Trip","namespace":"a","fields":'
        '[{"name":"l","type":{"type":"record","name":"Leg","fields":[]}}]}'
    )
    assert trip.pointer == "trip.avsc#"
