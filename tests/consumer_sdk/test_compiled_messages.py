"""The compiled form of what makes a message, beside its Python form.

The compiled form makes ordinary messages alone. The Python form defines everything else.
"""

from __future__ import annotations

import gc
import sys
from dataclasses import FrozenInstanceError
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import Message as Raw

from consumer_sdk import Message
from consumer_sdk._decode import Known
from consumer_sdk._topic_decoders import TopicDecoders
from headworks._native import messages
from headworks._wire import prefix
from tests.tools import needs
from tests.want_of_memory import fail_each_allocation

pytestmark = [pytest.mark.unit, needs("extensions")]

HEAD = prefix(7)


def _decode(value: bytes, start: int) -> Any:
    if value[start:] == b"bad":
        raise ValueError(value)
    if value[start:] == b"stop":
        raise KeyboardInterrupt
    if value[start:] == b"wrong":
        raise AttributeError("a mistake of ours")
    return ["event", value[start:]]


def _known() -> dict[str | None, dict[bytes, Known]]:
    of_views: dict[bytes, Known] = {HEAD: (_decode, 7, 3), prefix(8): (_decode, 8, None)}
    return {"views": of_views, "clicks": {HEAD: (_decode, 7, 1)}}


def _decoders(*, tombstones: bool = False) -> TopicDecoders:
    """Decoders that know these topics."""
    made = TopicDecoders("http://127.0.0.1:9", [], {}, tombstones=tombstones)
    made._known.update(_known())
    return made


def _raw(value: Any = HEAD + b"good", topic: str | None = "views", **more: Any) -> Any:
    given: dict[str, Any] = {
        "key": b"key",
        "partition": 2,
        "offset": 1 << 40,
        "timestamp": (1, 1_700_000_000_000),
    }
    return Raw(topic=topic, value=value, **given | more)


_RAWS = {
    "ordinary": _raw(),
    "another schema": _raw(prefix(8) + b"good"),
    "another topic": _raw(topic="clicks"),
    "no key": _raw(key=None),
    "headers": _raw(headers=[("trace", b"1"), ("trace", None), ("é", "text")]),
    "empty headers": _raw(headers=[]),
    "append time": _raw(timestamp=(2, 5)),
    "no time": _raw(timestamp=(0, -1)),
    "no partition and no offset": Raw(topic="views", value=HEAD + b"good"),
    "a tombstone": _raw(None),
    "unknown topic": _raw(topic="orders"),
    "no topic": _raw(topic=None),
    "unknown schema": _raw(prefix(9) + b"good"),
    "too short": _raw(HEAD[:4]),
    "a header alone": _raw(HEAD),
    "empty": _raw(b""),
    "text": _raw("text"),
    "bad": _raw(HEAD + b"bad"),
    "stopped": _raw(HEAD + b"stop"),
    "a mistake": _raw(HEAD + b"wrong"),
}


def _outcome(call: Any, raw: Any) -> Any:
    try:
        return call(raw)
    except BaseException as error:
        return type(error), str(error)


@pytest.mark.parametrize("tombstones", [False, True])
@pytest.mark.parametrize("what", _RAWS)
def test_both_forms_return_the_same(what: str, *, tombstones: bool) -> None:
    decoders = _decoders(tombstones=tombstones)
    found = [_outcome(decoders.known_message, _RAWS[w]) for w in ("another topic", what, what)]
    python = [_outcome(decoders._known_message, _RAWS[w]) for w in ("another topic", what, what)]
    assert found == python
    assert [type(one) for one in found] == [type(one) for one in python]


def test_what_is_ordinary_is_made_without_python() -> None:
    reader = messages.MessageReader(Raw, Message, _known(), lambda _: "declined")
    made = reader.read(_RAWS["headers"])
    assert type(made) is Message
    headers: Any = made.headers
    assert headers == (("trace", b"1"), ("trace", None), ("é", "text"))
    assert (made.partition, made.offset, made.timestamp) == (2, 1 << 40, 1_700_000_000_000)
    assert (made.event, made.key) == (["event", b"good"], b"key")
    assert (made.schema_id, made.schema_version) == (7, 3)
    assert made.topic is reader.read(_RAWS["ordinary"]).topic
    assert gc.is_tracked(made)
    with pytest.raises(FrozenInstanceError):
        made.offset = 1  # type: ignore[misc]
    for what in ("a tombstone", "unknown topic", "unknown schema", "too short", "text", "bad"):
        assert reader.read(_RAWS[what]) == "declined"


def test_a_message_of_another_class_is_pythons() -> None:
    class Derived(Raw):
        pass

    reader = messages.MessageReader(Raw, Message, _known(), lambda raw: ("python", raw))
    for raw in (Derived(topic="views", value=HEAD), SimpleNamespace(), None):
        assert reader.read(raw) == ("python", raw)


def test_classes_that_are_not_as_expected_are_refused() -> None:
    class Plain:
        pass

    for raw, message in ((Plain, Message), (Raw, Plain), (Raw, int)):
        with pytest.raises((TypeError, AttributeError)):
            messages.MessageReader(raw, message, {}, print)


def test_nothing_is_leaked() -> None:
    reader = messages.MessageReader(Raw, Message, _known(), lambda _: None)
    raws = [_raw(headers=[("a", b"b")]), _RAWS["bad"], _RAWS["unknown topic"], _RAWS["a tombstone"]]

    def read_all() -> None:
        for raw in raws:
            reader.read(raw)

    def flat() -> bool:
        gc.collect()
        before = sys.getallocatedblocks()
        for _ in range(2000):
            read_all()
        gc.collect()
        return sys.getallocatedblocks() < before + 500

    read_all()
    counts = [sys.getrefcount(raw) for raw in raws]
    # A leak shows in each measurement; the objects of another test's thread do not.
    assert any(flat() for _ in range(3))
    assert [sys.getrefcount(raw) for raw in raws] == counts


@pytest.mark.e2e
def test_want_of_memory() -> None:
    raw = _RAWS["headers"]

    def read() -> Any:  # a reader keeps the topic and header of its last message
        return messages.MessageReader(Raw, Message, _known(), lambda _: None).read(raw)

    fail_each_allocation(read, least=5)
