"""Generated encoders against fastavro: for any schema and any data the bytes are the same."""

from __future__ import annotations

import io
import random
from pathlib import Path
from typing import Any

import fastavro
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from consumer_sdk import Decoder
from headworks.registry_client import RegistryClient
from headworks.schema import parse
from headworks.schema.canonical import canonical_text
from headworks.wire import prefix
from tests.sdk.packages import build
from tests.sdk.schemas import Chooser, Data, dumps


class KnownSchema(RegistryClient):
    """A registry that knows one schema, by any id."""

    def __init__(self, text: str) -> None:
        self._text = text

    def schema_text(self, schema_id: int) -> str:
        return self._text


def fastavro_bytes(schema: Any, datum: Any) -> bytes:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, schema, datum)
    return out.getvalue()


@settings(
    max_examples=150,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(seed=st.integers(0, 2**32))
def test_bytes_equal_fastavros(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    schema = Chooser(chance).event()
    modules = build(tmp_path, {"event.avsc": dumps(schema)})
    node = parse(dumps(schema))
    reference = fastavro.parse_schema(schema)
    data = Data(chance, modules)
    kind = data.cls(schema["name"]).__headworks__
    assert kind.schema == dumps(schema)
    assert canonical_text(parse(kind.schema)) == canonical_text(node)
    decoder = Decoder(KnownSchema(kind.schema), kind.topic, kind)
    for _ in range(5):
        typed, plain = data.datum(node)
        encoded = kind.encode(typed)
        assert encoded == fastavro_bytes(reference, plain)
        assert decoder.decode(prefix(7) + encoded) == (typed, 7)
