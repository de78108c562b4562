"""Classes that are older than the schema of an event: the error blames them, and not the event."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from consumer_sdk import DecodeError, Decoder
from headworks._wire import prefix
from headworks.codec import event_type
from tests.headworks.codec.generated_packages import build

pytestmark = pytest.mark.unit


def schema(*fields: dict[str, Any]) -> str:
    governed = {"type": "record", "name": "shop.Order", "headworks": {"topic": "orders"}}
    return json.dumps({**governed, "fields": fields})


def kind(*symbols: str) -> dict[str, Any]:
    return {"name": "kind", "type": {"type": "enum", "name": "Kind", "symbols": symbols}}


class Registry:
    """A registry with one schema."""

    url = "http://registry"

    def __init__(self, text: str) -> None:
        self._text = text

    def schema_text(self, _schema_id: int) -> str:
        return self._text


NAMED = {"name": "customer", "type": "string"}
RENAMED = {"name": "client", "type": "string"}


@pytest.mark.parametrize(
    ("written", "read", "datum", "reason"),
    [
        ((RENAMED,), (NAMED,), b"\x06ada", "no field 'customer'"),
        ((kind("NEW", "USED"),), (kind("NEW"),), b"\x02", "USED"),
    ],
)
def test_the_error_advises_to_generate_the_classes_again(
    tmp_path: Path, written: Any, read: Any, datum: bytes, reason: str
) -> None:
    order = build(tmp_path, {"order.avsc": schema(*read)})["shop"].Order
    registry: Any = Registry(schema(*written))
    decoder = Decoder(registry, "orders", event_type(order))
    with pytest.raises(DecodeError, match=f"class shop.Order cannot read.*{reason}") as caught:
        decoder.decode(prefix(7) + datum)
    assert "headworks gen" in (caught.value.fix or "")
    with pytest.raises(DecodeError, match="the bytes are not an event") as broken:
        decoder.decode(prefix(7) + datum[:-1])
    assert broken.value.fix is None
