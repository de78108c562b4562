"""The compiled decoder of events beside the Python one: odd values, classes, and calls."""

from __future__ import annotations

import datetime as dt
import gc
import json
import sys
import tracemalloc
import uuid
import weakref
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from consumer_sdk._event_program import event_decoder
from consumer_sdk._generated_decoder import DATUM_ERRORS, compiled
from headworks._native import decoder
from headworks.schema import parse
from tests.headworks.codec.generated_packages import build
from tests.headworks.codec.test_compiled_encoder import event, schema
from tests.headworks.decoding.test_compiled_decoder import varint
from tests.tools import needs
from tests.want_of_memory import fail_each_allocation

pytestmark = [
    pytest.mark.unit,
    needs("extensions"),
]


@pytest.fixture(scope="module")
def module(tmp_path_factory: pytest.TempPathFactory) -> Any:
    folder = tmp_path_factory.mktemp("events")
    return build(folder, {"event.avsc": schema("Event")})["all"]


def forms(module: Any) -> tuple[Any, Any]:
    """The Python form and the compiled form of a decoder."""
    kind = module.Event.__headworks__
    both = parse(kind.schema)
    return compiled(both, both, kind.types), event_decoder(both, both, kind.types)


def test_every_day_and_every_part_of_a_second_is_pythons(module: Any) -> None:
    python, form = forms(module)
    for ordinal in [*range(1, dt.date.max.toordinal(), 9_973), dt.date.max.toordinal()]:
        day = dt.date.fromordinal(ordinal)
        for time in (dt.time.min, dt.time.max, dt.time(23, 1, 2, ordinal % 1_000_000)):
            at = dt.datetime.combine(day, time, tzinfo=dt.UTC)
            given = event(module, instant_millis=at, instant_micros=at)
            data = b"head." + module.Event.__headworks__.encode(given)
            assert repr(form(data, 5)) == repr(python(data, 5))
    assert form.__self__.declined == 0


def test_an_instant_that_python_cannot_hold_is_refused_by_python(tmp_path: Path) -> None:
    for unit in ("millis", "micros"):
        at = {"type": "long", "logicalType": f"timestamp-{unit}"}
        text = {"type": "record", "name": "At", "fields": [{"name": "at", "type": at}]}
        modules = build(tmp_path / unit, {"event.avsc": json.dumps(text)})
        (cls,) = (module.At for module in modules.values() if hasattr(module, "At"))
        both = parse(cls.__headworks__.schema)
        form: Any = event_decoder(both, both, cls.__headworks__.types)
        python = compiled(both, both, cls.__headworks__.types)
        per_second = 1_000 if unit == "millis" else 1_000_000
        first, end = -62_135_596_800 * per_second, 253_402_300_800 * per_second
        for number in (first, first - 1, end - 1, end, -(1 << 63), (1 << 63) - 1):
            data = varint(number)
            assert outcome(form, data) == outcome(python, data)
        assert form.__self__.declined == 4


def test_uuids_in_other_spellings_are_pythons(module: Any) -> None:
    number = uuid.UUID(int=0x0123456789ABCDEF0123456789ABCDEF)
    python, form = forms(module)
    data = module.Event.__headworks__.encode(event(module, uuid=number))
    plain = str(number).encode()
    for spelling, declined in (
        (plain.upper(), 0),
        (plain.replace(b"-", b"") + b"----", 1),
        (b"{" + plain.replace(b"-", b"") + b"}--", 2),
        (plain[:-1] + b"g", 3),
        (plain[:-1] + b" ", 4),
    ):
        changed = data.replace(plain, spelling)
        assert outcome(form, changed) == outcome(python, changed)
        assert form.__self__.declined == declined


def outcome(form: Any, data: bytes) -> str:
    try:
        return repr(form(data, 0))
    except DATUM_ERRORS as error:
        return repr(error)


@pytest.fixture
def restored(module: Any) -> Iterator[Any]:
    slot = module.Node.__dict__["label"]
    yield module
    module.Node.label = slot


def test_a_class_that_is_changed_is_noticed(restored: Any) -> None:
    module, data = restored, restored.Event.__headworks__.encode(event(restored))
    python, form = forms(module)
    form(data, 0)
    assert form.__self__.declined == 0
    module.Node.label = property(lambda self: "patched", lambda self, value: None)
    assert form(data, 0).record.label == python(data, 0).record.label == "patched"
    assert form.__self__.declined == 1
    assert not hasattr(forms(module)[1], "__self__"), "no program for a class that was changed"


def test_what_is_no_bytes_or_no_position_is_pythons(module: Any) -> None:
    data = module.Event.__headworks__.encode(event(module))
    _, form = forms(module)
    for count, given in enumerate(((data, True), (data, -1), (data, 1 << 70))):
        assert form.__self__.declined == count
        with suppress(*DATUM_ERRORS):
            form(*given)
    with pytest.raises(TypeError):
        form(data)


def test_an_interrupt_in_a_conversion_is_not_swallowed(module: Any) -> None:
    def interrupted(value: int) -> None:
        raise KeyboardInterrupt

    nodes = (("call", (1,), -1, 0, None, 0, interrupted), ("integer", (), -1, 64, None, 0, None))
    made = decoder.EventProgram(nodes=nodes, decode=lambda data, start: "python")
    with pytest.raises(KeyboardInterrupt):
        made.decode(b"\2", 0)
    assert made.declined == 0


def test_nothing_is_kept_of_any_event(module: Any) -> None:
    _, form = forms(module)
    data = module.Event.__headworks__.encode(event(module, string="x" * 3000))
    bad = [data[:size] for size in range(len(data) - 3000)]

    def run(count: int) -> None:
        for _ in range(count):
            form(data, 0)
        for cut in bad:
            outcome(form, cut)

    def flat() -> bool:
        gc.collect()
        before = tracemalloc.get_traced_memory()[0], sys.getrefcount(module.Node)
        run(3_000)
        gc.collect()
        grown = tracemalloc.get_traced_memory()[0] - before[0]
        return grown < 20_000 and sys.getrefcount(module.Node) == before[1]

    run(100)
    tracemalloc.start()
    try:
        assert any(flat() for _ in range(3))
    finally:
        tracemalloc.stop()


@pytest.mark.e2e
def test_want_of_memory_is_told(module: Any) -> None:
    _, form = forms(module)
    data = module.Event.__headworks__.encode(event(module))
    whole = repr(form(data, 0))

    def check(found: Any) -> None:
        assert repr(found) == whole

    fail_each_allocation(lambda: form(data, 0), least=10, calls=120, check=check)


def test_a_decoder_goes_with_its_classes(tmp_path: Path) -> None:
    module = build(tmp_path, {"event.avsc": schema("Event")})["all"]
    kept = forms(module)
    gone = weakref.ref(module.Event)
    name = module.__name__
    del sys.modules[name]
    delattr(sys.modules[name.rpartition(".")[0]], name.rpartition(".")[2])
    del module, kept
    for _ in range(3):
        gc.collect()
    assert gone() is None


def node(kind: str, *below: int, value: Any = None, size: int = 0) -> tuple[Any, ...]:
    return kind, below, -1, size, None, 0, value


@pytest.mark.parametrize(
    "nodes",
    [
        (),
        (5,),
        (("integer",),),
        (node("nonsense"),),
        (node("record"),),
        (node("record", value=(5,)),),
        (node("record", value=(int,)),),
        (node("record", value=(uuid.UUID, "int")),),
        (node("record", 0, value=(uuid.UUID, "int")),),
        (node("record", 0, value=(uuid.UUID, "hex"), size=1),),
        (node("record", 0, value=(uuid.UUID, 5), size=1),),
        (node("record", 0, 0, value=(uuid.UUID, "int", "int"), size=1),),
        (node("call", value=5),),
        (node("call", 0, 0, value=repr),),
        (node("list", size=1),),
        (node("union", 1),),
    ],
)
def test_a_description_that_makes_no_sense_is_refused(nodes: Any) -> None:
    with pytest.raises(TypeError):
        decoder.EventProgram(nodes=nodes, decode=lambda data, start: None)
