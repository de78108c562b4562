"""The law of generated classes, for one drawn schema: fastavro's bytes, the same object back, and
defaults that are Avro's; and from the compiled form, which takes every ordinary event itself, what
Python gives. Short in tests/headworks/codec/test_codec.py, for minutes in `python -m tests.soak`.
"""

from __future__ import annotations

import io
import json
import random
from pathlib import Path
from typing import Any

import fastavro

from consumer_sdk import Decoder
from consumer_sdk._event_program import event_decoder
from consumer_sdk._generated_decoder import compiled
from headworks._native import COMPILED
from headworks._wire import prefix
from headworks.codec import EventType
from headworks.registry_client import RegistryClient
from headworks.schema import Array, Fixed, MapType, Record, Schema, Union, parse
from headworks.schema._canonical import canonical_text
from tests.headworks.codec.drawn_defaults import give_defaults, without_logical
from tests.headworks.codec.drawn_schemas import Chooser, Data, dumps
from tests.headworks.codec.generated_packages import build


class KnownSchema(RegistryClient):
    """A registry that knows one schema, by any id."""

    def __init__(self, text: str) -> None:
        self._text = text

    def schema_text(self, schema_id: int, subject: str = "") -> str:
        return self._text


def fastavro_bytes(schema: Any, datum: Any) -> bytes:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, schema, datum)
    return out.getvalue()


def _leaves(record: Record, above: str = "", depth: int = 3) -> dict[str, Schema]:
    """What is not a record, by its path through records."""
    found: dict[str, Schema] = {}
    for field in record.fields:
        path = f"{above}{field.name}"
        if not isinstance(field.type, Record):
            found[path] = field.type
        elif depth:
            found |= _leaves(field.type, f"{path}.", depth - 1)
    return found


def _is_plain(leaf: Schema) -> bool:
    branches = leaf.branches if isinstance(leaf, Union) else (leaf,)
    return not any(isinstance(branch, Record | Array | MapType | Fixed) for branch in branches)


def _governed(chance: random.Random, schema: dict[str, Any]) -> dict[str, Any]:
    """The schema with an event time and a key of some of its fields, where it has such."""
    root = parse(dumps(schema))
    assert isinstance(root, Record)
    leaves = _leaves(root)
    timestamps = [
        path
        for path, leaf in leaves.items()
        if getattr(getattr(leaf, "logical", None), "name", "")
        in ("timestamp-millis", "timestamp-micros")
    ]
    plain = [path for path, leaf in leaves.items() if _is_plain(leaf)]
    key = chance.sample(plain, min(len(plain), chance.choice([0, 1, 1, 2, 3])))
    time = {"event_time": chance.choice(timestamps)} if timestamps else {}
    return {**schema, "headworks": {"key": key, **time}}


def check_encoders(kind: EventType[Any], event: object) -> bytes:
    """The bytes of an event; AssertionError if the compiled form declined it, or differs."""
    encoder: Any = kind.encoder
    before = encoder.declined if COMPILED else 0
    encoded = kind.encode(event)
    assert kind.python_encoder.encode(event) == encoded
    message = encoder.message(prefix(7), event)
    assert message == kind.python_encoder.message(prefix(7), event)
    assert message[0] == prefix(7) + encoded
    if COMPILED:
        ordinary = "Decimal('" not in repr(event)  # decimals are Python's
        assert encoder.declined - before == (0 if ordinary else 2)
    return encoded


def check_codec(folder: Path, seed: int) -> None:
    """AssertionError if the law does not hold for the schema of `seed`."""
    chance = random.Random(seed)
    schema = _governed(chance, Chooser(chance).event())
    modules = build(folder, {"event.avsc": dumps(schema)})
    node = parse(dumps(schema))
    reference = fastavro.parse_schema(json.loads(dumps(schema)))
    data = Data(chance, modules)
    kind = data.cls(schema["name"]).__headworks__
    assert kind.schema == dumps(schema)
    assert canonical_text(parse(kind.schema)) == canonical_text(node)
    decoder = Decoder(KnownSchema(kind.schema), kind.topic, kind)
    python, form = (make(node, node, kind.types) for make in (compiled, event_decoder))
    for _ in range(5):
        typed, plain = data.datum(node)
        encoded = check_encoders(kind, typed)
        assert encoded == fastavro_bytes(reference, plain)
        back, _ = decoder.decode(prefix(7) + encoded)
        assert back == typed or "nan" in repr(typed)  # which is not equal to itself
        assert check_encoders(kind, back) == encoded
        assert repr(form(encoded, 0)) == repr(python(encoded, 0))
    assert not COMPILED or form.__self__.declined == 0  # type: ignore[attr-defined]


def check_defaults(folder: Path, seed: int) -> None:
    """AssertionError if a class, or the decoder, fills in anything but the schema's defaults."""
    chance = random.Random(seed)
    schema, expected = give_defaults(chance, Chooser(chance).event())
    modules = build(folder, {"event.avsc": dumps(schema)})
    cls = Data(chance, modules).cls(schema["name"])
    kind = cls.__headworks__
    plain = fastavro.parse_schema(without_logical(json.loads(dumps(schema))))
    encoded = check_encoders(kind, cls())
    assert encoded == fastavro_bytes(plain, expected)
    empty = dumps({**schema, "fields": []})
    found, _ = Decoder(KnownSchema(empty), kind.topic, kind).decode(prefix(7))
    assert kind.encode(found) == encoded
    assert found == cls()
