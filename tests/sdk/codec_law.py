"""The law of generated classes, for one drawn schema: fastavro's bytes, the same object back, and
defaults that are Avro's. Short in tests/sdk/test_codec.py, for minutes in `python -m tests.soak`.
"""

from __future__ import annotations

import io
import json
import random
from pathlib import Path
from typing import Any

import fastavro

from consumer_sdk import Decoder
from headworks.registry_client import RegistryClient
from headworks.schema import parse
from headworks.schema.canonical import canonical_text
from headworks.wire import prefix
from tests.sdk.defaults import give_defaults, without_logical
from tests.sdk.packages import build
from tests.sdk.schemas import Chooser, Data, dumps


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


def check_codec(folder: Path, seed: int) -> None:
    """AssertionError if the law does not hold for the schema of `seed`."""
    chance = random.Random(seed)
    schema = Chooser(chance).event()
    modules = build(folder, {"event.avsc": dumps(schema)})
    node = parse(dumps(schema))
    reference = fastavro.parse_schema(json.loads(dumps(schema)))
    data = Data(chance, modules)
    kind = data.cls(schema["name"]).__headworks__
    assert kind.schema == dumps(schema)
    assert canonical_text(parse(kind.schema)) == canonical_text(node)
    decoder = Decoder(KnownSchema(kind.schema), kind.topic, kind)
    for _ in range(5):
        typed, plain = data.datum(node)
        encoded = kind.encode(typed)
        assert encoded == fastavro_bytes(reference, plain)
        back, _ = decoder.decode(prefix(7) + encoded)
        assert back == typed or "nan" in repr(typed)  # which is not equal to itself
        assert kind.encode(back) == encoded


def check_defaults(folder: Path, seed: int) -> None:
    """AssertionError if a class, or the decoder, fills in anything but the schema's defaults."""
    chance = random.Random(seed)
    schema, expected = give_defaults(chance, Chooser(chance).event())
    modules = build(folder, {"event.avsc": dumps(schema)})
    cls = Data(chance, modules).cls(schema["name"])
    kind = cls.__headworks__
    plain = fastavro.parse_schema(without_logical(json.loads(dumps(schema))))
    encoded = kind.encode(cls())
    assert encoded == fastavro_bytes(plain, expected)
    empty = dumps({**schema, "fields": []})
    found, _ = Decoder(KnownSchema(empty), kind.topic, kind).decode(prefix(7))
    assert kind.encode(found) == encoded
    assert found == cls()
