"""The compiled encoder beside the Python one: what is ordinary it takes, and nothing differs."""

from __future__ import annotations

import datetime as dt
import gc
import json
import math
import sys
import threading
import tracemalloc
import uuid
from collections import OrderedDict
from collections.abc import Callable, Iterator
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from headworks.codec import EncodeError
from tests.headworks.codec.generated_packages import build
from tests.tools import needs

pytestmark = [
    pytest.mark.unit,
    needs("extensions"),
]
HEAD = b"\0\0\0\0\7"
UTC = dt.UTC
AT = dt.datetime(2026, 5, 1, 12, 30, 1, 999_999, tzinfo=UTC)
ENUM = {"type": "enum", "name": "Suit", "symbols": ["A", "B", "class"]}
NODE = {
    "type": "record",
    "name": "Node",
    "fields": [
        {"name": "label", "type": "string"},
        {"name": "next", "type": ["null", "Node"], "default": None},
    ],
}
OTHER = {"type": "record", "name": "Other", "fields": [{"name": "n", "type": "int"}]}
FIXED = [{"type": "fixed", "name": f"Fixed{size}", "size": size} for size in (2, 3)]
DECIMAL = {"type": "bytes", "logicalType": "decimal", "precision": 4, "scale": 2}
TYPES: dict[str, Any] = {
    "null": "null",
    "boolean": "boolean",
    "int": "int",
    "long": "long",
    "float": "float",
    "double": "double",
    "bytes": "bytes",
    "string": "string",
    "fixed": {"type": "fixed", "name": "Code", "size": 2},
    "enum": ENUM,
    "record": NODE,
    "array": {"type": "array", "items": "int"},
    "map": {"type": "map", "values": "string"},
    "optional": ["null", "string"],
    "defaulted": ["string", "null"],
    "union": ["null", "boolean", "int", "long", "string", "Suit", "Node", OTHER, DECIMAL],
    "reals": ["float", "double"],
    "blobs": [*FIXED, "bytes"],
    "lists": ["null", {"type": "array", "items": ["null", "Node"]}, "int"],
    "date": {"type": "int", "logicalType": "date"},
    "time_millis": {"type": "int", "logicalType": "time-millis"},
    "time_micros": {"type": "long", "logicalType": "time-micros"},
    "instant_millis": {"type": "long", "logicalType": "timestamp-millis"},
    "instant_micros": {"type": "long", "logicalType": "timestamp-micros"},
    "local_millis": {"type": "long", "logicalType": "local-timestamp-millis"},
    "local_micros": {"type": "long", "logicalType": "local-timestamp-micros"},
    "uuid": {"type": "string", "logicalType": "uuid"},
    "uuid_fixed": {"type": "fixed", "name": "Sixteen", "size": 16, "logicalType": "uuid"},
}


def schema(name: str, **governance: Any) -> str:
    fields = [{"name": field, "type": type_} for field, type_ in TYPES.items()]
    head = {"type": "record", "name": name, "namespace": "all", "headworks": governance}
    return json.dumps({**head, "fields": fields})


@pytest.fixture(scope="module")
def module(tmp_path_factory: pytest.TempPathFactory) -> Any:
    text = schema("Event", event_time="instant_micros", key=["long"])
    return build(tmp_path_factory.mktemp("compiled"), {"event.avsc": text})["all"]


def event(module: Any, **changed: Any) -> Any:
    values = {
        "null": None,
        "boolean": True,
        "int": -5,
        "long": 1 << 40,
        "float": 1.5,
        "double": 0.1,
        "bytes": b"\0x",
        "string": "x",
        "fixed": b"ab",
        "enum": module.Suit.B,
        "record": module.Node(label="a", next=module.Node(label="b")),
        "array": [1, -70, 1 << 20],
        "map": {"a": "b", "c": ""},
        "optional": None,
        "defaulted": "z",
        "union": 3,
        "reals": 0.5,
        "blobs": b"abc",
        "lists": [None, module.Node(label="c")],
        "date": AT.date(),
        "time_millis": AT.time(),
        "time_micros": AT.time(),
        "instant_millis": AT,
        "instant_micros": AT,
        "local_millis": AT.replace(tzinfo=None),
        "local_micros": AT.replace(tzinfo=None),
        "uuid": uuid.UUID(int=7),
        "uuid_fixed": uuid.UUID(int=(1 << 128) - 1),
    }
    names = module.Event.__headworks__.fields
    return module.Event(**{names[field]: value for field, value in {**values, **changed}.items()})


def check(given: Any, *, declined: bool = False) -> None:
    """Both forms do the same: give these bytes, or raise this error."""
    kind = type(given).__headworks__
    form = kind.encoder
    before = form.declined
    pairs: list[tuple[Callable[[], Any], Callable[[], Any]]] = [
        (lambda: form.encode(given), lambda: kind.python_encoder.encode(given)),
        (lambda: form.message(HEAD, given), lambda: kind.python_encoder.message(HEAD, given)),
    ]
    for mine, reference in pairs:
        assert outcome(mine) == outcome(reference)
    assert form.declined - before == (2 if declined else 0)


def outcome(call: Callable[[], Any]) -> Any:
    try:
        return call()
    except Exception as error:
        return type(error), str(error), vars(error)


NAIVE = AT.replace(tzinfo=None)
EXTREMES: list[tuple[str, list[Any]]] = [
    ("boolean", [False]),
    ("int", [0, (1 << 31) - 1, -(1 << 31), 63, 64, -64, -65]),
    ("long", [(1 << 63) - 1, -(1 << 63), 0, 1 << 62]),
    ("float", [0.0, -0.0, math.inf, -math.inf, math.nan, 3.4028234663852886e38, 1e-50, 7, -1]),
    ("double", [math.inf, math.nan, 5e-324, 1.7976931348623157e308, 3, -1, 1 << 70]),
    ("bytes", [b"", bytes(10_000)]),
    (
        "string",
        ["", "ä", "語", "🎈", "aä語🎈\0", "\x7f\x80\u07ff\u0800\uffff\U00010000", "x" * 70_000],
    ),
    ("string", ["é" * 5_000, "語" * 5_000, "🎈" * 5_000, "\ue000\ud7ff"]),
    ("array", [[], [0] * 10_000]),
    ("map", [{}, {"é": "語"}, {str(n): "v" for n in range(3_000)}]),
    ("optional", ["", "y"]),
    ("defaulted", [None]),
    ("union", [None, True, False, 1 << 31, -(1 << 31), (1 << 63) - 1, "text", ""]),
    ("reals", [1e300, math.nan, 5]),
    ("blobs", [b"ab", b"abc", b"", bytes(100)]),
    ("lists", [None, [], [None] * 3, 9]),
    ("date", [dt.date.min, dt.date.max, dt.date(1969, 12, 31), dt.date(2000, 2, 29)]),
    ("time_millis", [dt.time.min, dt.time.max, dt.time(1, 2, 3, 999)]),
    ("time_micros", [dt.time.min, dt.time.max]),
    *[
        (
            name,
            [
                dt.datetime.min.replace(tzinfo=zone),
                dt.datetime.max.replace(tzinfo=zone),
                dt.datetime(1969, 12, 31, 23, 59, 59, 999_999, tzinfo=zone),
                dt.datetime(1969, 12, 31, 23, 59, 59, 1, tzinfo=zone),
                dt.datetime(1900, 3, 1, 0, 0, 0, 1_500, tzinfo=zone),
                dt.datetime(2000, 2, 29, fold=1, tzinfo=zone),
            ],
        )
        for zone, names in ((UTC, "instant"), (None, "local"))
        for name in (f"{names}_millis", f"{names}_micros")
    ],
    ("uuid", [uuid.UUID(int=0), uuid.UUID(int=(1 << 128) - 1), uuid.UUID(int=1 << 127)]),
    ("uuid_fixed", [uuid.UUID(int=0), uuid.UUID(int=1 << 64)]),
]


@pytest.mark.parametrize(("field", "values"), EXTREMES)
def test_ordinary_values_of_every_type_are_taken(
    module: Any, field: str, values: list[Any]
) -> None:
    check(event(module))
    for value in values:
        check(event(module, **{field: value}))


def test_records_and_symbols_in_unions_are_taken(module: Any) -> None:
    for value in (module.Suit.A, module.Suit["class_"], module.Node(label="n"), module.Other(n=1)):
        check(event(module, union=value))


def test_every_day_is_pythons(module: Any) -> None:
    for ordinal in range(1, dt.date.max.toordinal(), 9_973):
        day = dt.date.fromordinal(ordinal)
        at = dt.datetime.combine(day, dt.time(23, 1, 2, ordinal % 1_000_000))
        check(event(module, date=day, local_micros=at, instant_millis=at.replace(tzinfo=UTC)))


class Text(str):
    pass


class Items(list[int]):
    pass


class Number(int):
    pass


class Real(float):
    pass


class Moment(dt.datetime):
    pass


class Identity(uuid.UUID):
    pass


MADRID = ZoneInfo("Europe/Madrid")
ACCEPTED: list[tuple[str, Any]] = [
    ("int", Number(5)),
    ("long", Number(5)),
    ("float", Real(0.5)),
    ("double", Number(5)),
    ("bytes", bytearray(b"x")),
    ("fixed", bytearray(b"xy")),
    ("string", Text("x")),
    ("array", (1, 2)),
    ("array", [Number(1)]),
    ("array", Items([1])),
    ("map", OrderedDict(a="b")),
    ("map", {Text("a"): Text("b")}),
    ("optional", Text("x")),
    ("union", Decimal("1.25")),
    ("instant_millis", AT.astimezone(MADRID)),
    ("instant_micros", AT.astimezone(dt.timezone(dt.timedelta(hours=-3)))),
    ("instant_micros", Moment(2026, 1, 1, tzinfo=UTC)),
    ("local_millis", Moment(2026, 1, 1)),
    ("uuid", Identity(int=5)),
]
WRONG: list[tuple[str, Any]] = [
    ("null", 0),
    ("boolean", 1),
    ("boolean", None),
    ("int", True),
    ("int", 1 << 31),
    ("int", -(1 << 31) - 1),
    ("int", 1.0),
    ("long", 1 << 63),
    ("long", -(1 << 63) - 1),
    ("long", 1 << 5000),
    ("long", "1"),
    ("float", 1e39),
    ("float", 1 << 2000),
    ("float", True),
    ("double", 1 << 2000),
    ("double", Decimal(1)),
    ("bytes", "x"),
    ("bytes", memoryview(b"x")),
    ("string", b"x"),
    ("string", "\ud800"),
    ("string", "ok \udfff"),
    ("string", "x" * 100_000 + "\udc80"),
    ("string", None),
    ("fixed", b"abc"),
    ("fixed", b""),
    ("fixed", "ab"),
    ("enum", "A"),
    ("enum", 0),
    ("record", None),
    ("record", {"label": "a"}),
    ("array", "ab"),
    ("array", [1, None]),
    ("array", {1: 2}),
    ("map", {"a": 1}),
    ("map", {1: "a"}),
    ("map", {"\ud800": "a"}),
    ("map", {None: "a"}),
    ("map", [("a", "b")]),
    ("optional", 5),
    ("optional", "\udead"),
    ("union", 1.5),
    ("union", 1 << 63),
    ("union", Text("x")),
    ("union", b"x"),
    ("union", Decimal("100.25")),
    ("reals", True),
    ("blobs", bytearray(b"ab")),
    ("blobs", "ab"),
    ("lists", [5]),
    ("lists", (None,)),
    ("date", AT),
    ("date", "2026-01-01"),
    ("time_millis", dt.time(1, tzinfo=UTC)),
    ("time_micros", 5),
    ("instant_millis", NAIVE),
    ("instant_micros", AT.date()),
    ("local_millis", AT),
    ("local_micros", AT.astimezone(MADRID)),
    ("uuid", str(uuid.UUID(int=1))),
    ("uuid_fixed", bytes(16)),
]


@pytest.mark.parametrize(("field", "value"), ACCEPTED)
def test_what_only_python_takes_python_encodes(module: Any, field: str, value: Any) -> None:
    given = event(module, **{field: value})
    check(given, declined=True)
    assert isinstance(given.__headworks__.encode(given), bytes)


@pytest.mark.parametrize(("field", "value"), WRONG)
def test_an_invalid_value_gets_the_error_of_the_python_encoder(
    module: Any, field: str, value: Any
) -> None:
    given = event(module, **{field: value})
    check(given, declined=True)
    with pytest.raises(EncodeError) as caught:
        given.__headworks__.encode(given)
    assert caught.value.path.startswith(given.__headworks__.fields[field].rstrip("_"))


def test_other_classes_and_prefixes_are_pythons(module: Any) -> None:
    plain = event(module)
    kind = module.Event.__headworks__
    sub = type("Sub", (module.Event,), {})
    check(sub(**{name: getattr(plain, name) for name in kind.fields.values()}), declined=True)
    for wrong in (None, 5, module.Node(label="x"), module.Event):
        assert outcome(partial(kind.encoder.encode, wrong)) == outcome(
            partial(kind.python_encoder.encode, wrong)
        )
    assert kind.encoder.message(bytearray(HEAD), plain) == kind.python_encoder.message(HEAD, plain)
    with pytest.raises(TypeError):
        kind.encoder.message(HEAD)


def test_an_attribute_that_is_gone(module: Any) -> None:
    for name in ("string", "record", "instant_micros", "long", "optional", "null", "union"):
        given = event(module)
        delattr(given, module.Event.__headworks__.fields[name])
        with pytest.raises(AttributeError):
            given.__headworks__.python_encoder.encode(given)
        check(given, declined=True)
    broken = uuid.UUID(int=1)
    object.__delattr__(broken, "int")
    check(event(module, uuid=broken), declined=True)
    object.__setattr__(broken, "int", 1 << 128)
    check(event(module, uuid=broken), declined=True)
    object.__setattr__(broken, "int", -1)
    check(event(module, uuid=broken), declined=True)


def test_what_is_no_member_of_its_enum_is_pythons(module: Any) -> None:
    check(event(module, enum=str.__new__(module.Suit, "A")), declined=True)
    before = module.Event.__headworks__.encoder.declined
    with pytest.raises(KeyError):
        module.Event.__headworks__.encode(event(module, enum=str.__new__(module.Suit, "Z")))
    assert module.Event.__headworks__.encoder.declined == before + 1


def test_deep_events_are_pythons_and_endless_ones_end(module: Any) -> None:
    def chain(length: int) -> Any:
        node = None
        for n in range(length):
            node = module.Node(label=str(n), next=node)
        return node

    check(event(module, record=chain(100)))
    check(event(module, record=chain(300)), declined=True)
    endless = chain(1)
    endless.next = endless
    before = module.Event.__headworks__.encoder.declined
    with pytest.raises(EncodeError, match="at most 250 records, arrays, and maps"):
        module.Event.__headworks__.encode(event(module, record=endless))
    assert module.Event.__headworks__.encoder.declined == before + 1


@pytest.fixture
def restored(module: Any) -> Iterator[Any]:
    slot = module.Node.__dict__["label"]
    yield module
    module.Node.label = slot
    for name in ("__getattribute__", "unrelated"):
        if name in module.Node.__dict__:
            delattr(module.Node, name)
    check_soon(module)


def check_soon(module: Any) -> None:
    """A class that was changed is looked at again before the event after the next."""
    event(module).__headworks__.encode(event(module))
    check(event(module))


def test_a_class_that_is_changed_is_noticed(restored: Any) -> None:
    module, kind = restored, restored.Event.__headworks__
    check(event(module))
    plain = kind.encode(event(module))
    module.Node.unrelated = 5
    check_soon(module)
    slot, made = module.Node.__dict__["label"], event(module)
    module.Node.label = property(lambda self: "patched")
    for _ in range(3):
        check(made, declined=True)
        assert b"patched" in kind.encode(made)
    module.Node.label = module.Other.__dict__["n"]  # a slot, but of other objects
    for _ in range(3):
        check(made, declined=True)
    module.Node.label = slot
    check_soon(module)
    module.Node.__getattribute__ = lambda self, name: object.__getattribute__(self, name)
    for _ in range(3):
        check(event(module), declined=True)
    del module.Node.__getattribute__
    check_soon(module)
    assert kind.encode(event(module)) == plain


def test_an_object_that_becomes_another_class(module: Any) -> None:
    twin = type("Twin", (module.Node,), {"__slots__": ()})
    node = module.Node(label="x")
    node.__class__ = twin
    check(event(module, record=node), declined=True)
    lying = type("Lying", (), {"__class__": property(lambda self: module.Node)})()
    check(event(module, record=lying), declined=True)


KEYS: list[tuple[list[str], dict[str, Any]]] = [
    (["string"], {"string": "naïve 語"}),
    (["long"], {"long": -(1 << 63)}),
    (["enum"], {}),
    (["uuid"], {}),
    (["boolean"], {"boolean": False}),
    (["null"], {}),
    (["optional"], {}),
    (["optional"], {"optional": "x"}),
    (["record.label"], {}),
    (["double"], {"double": math.nan}),
    (["bytes"], {}),
    (["instant_millis"], {}),
    (["date", "int"], {}),
    (["optional", "string", "int", "enum"], {}),
    (["boolean", "defaulted", "uuid", "null"], {"defaulted": None}),
    (["int", "float"], {}),
]


PRINTED_BY_PYTHON = ("double", "bytes", "float", TYPES["date"], TYPES["instant_millis"])


def python_in(message: Callable[[bytes, Any], Any], given: Any) -> tuple[Any, list[str]]:
    """The message of an event, and the Python functions that ran for it."""
    ran: list[str] = []

    def note(frame: Any, what: str, _argument: Any) -> None:
        if what == "call":
            ran.append(frame.f_code.co_name)

    sys.setprofile(note)
    try:
        return message(HEAD, given), ran
    finally:
        sys.setprofile(None)


def test_messages_with_and_without_time_and_key(tmp_path: Path) -> None:
    for n, (key, changed) in enumerate(KEYS):
        time = {"event_time": "instant_millis"} if n % 2 else {}
        module = build(tmp_path, {"event.avsc": schema("Event", key=key, **time)})["all"]
        given = event(module, instant_millis=dt.datetime(1931, 1, 1, 0, 0, 0, 1, UTC), **changed)
        check(given)
        made, called = python_in(given.__headworks__.encoder.message, given)
        assert bool(called) == any(TYPES.get(part, "") in PRINTED_BY_PYTHON for part in key)
        assert (made[1] is None) == (not time)
        assert (made[2] is None) == (key in (["null"], ["optional"]) and not changed)
    bare = build(tmp_path, {"event.avsc": schema("Event")})["all"]
    check(event(bare))
    assert event(bare).__headworks__.encoder.message(HEAD, event(bare))[1:] == (None, None)


def test_a_class_that_cannot_be_read_in_place_is_pythons(tmp_path: Path) -> None:
    module = build(tmp_path, {"event.avsc": schema("Event")})["all"]
    kind = module.Event.__headworks__
    module.Node.label = property(lambda self: "patched")
    assert kind.encoder is kind.python_encoder


def test_events_are_encoded_while_others_change_them(module: Any) -> None:
    """Each value is of one moment: no half of two, whatever other threads do."""
    kind, done = module.Event.__headworks__, threading.Event()
    shared = event(module, map={}, array=[], record=module.Node(label="a"), lists=None)

    def change() -> None:
        n = 0
        while not done.is_set():
            n += 1
            shared.map = {str(k): str(n) for k in range(n % 50)}
            shared.map.clear()
            shared.array.extend(range(n % 70))
            shared.array.clear()
            shared.record.label = "x" * (n % 3000)
            shared.record = module.Node(label="ä" * (n % 300))

    threads = [threading.Thread(target=change) for _ in range(3)]
    pause = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        for thread in threads:
            thread.start()
        before = kind.encoder.declined
        for _ in range(20_000):
            kind.encoder.message(HEAD, shared)
        assert kind.encoder.declined == before
    finally:
        done.set()
        sys.setswitchinterval(pause)
        for thread in threads:
            thread.join()


def test_nothing_is_kept_of_any_event(module: Any) -> None:
    kind = module.Event.__headworks__
    right, deep = event(module), event(module, string="ä" * 3000, array=list(range(3000)))
    odd, wrong = event(module, array=(1,)), event(module, lists=[5])
    slots = [getattr(right, name) for name in kind.fields.values()]
    slots = [value for value in slots if sys.getrefcount(value) < 100]  # not None and its like

    def encode(count: int) -> None:
        for _ in range(count):
            kind.encoder.message(HEAD, right)
            kind.encoder.encode(right)
        for _ in range(count // 100):
            kind.encoder.message(HEAD, deep)
            kind.encoder.message(HEAD, odd)
        for _ in range(count // 10_000):
            outcome(lambda: kind.encoder.message(HEAD, wrong))

    def flat() -> bool:
        gc.collect()
        counts = [sys.getrefcount(value) for value in [*slots, right, kind.encoder]]
        before = tracemalloc.get_traced_memory()[0]
        encode(30_000)
        gc.collect()
        grown = tracemalloc.get_traced_memory()[0] - before
        now = [sys.getrefcount(value) for value in [*slots, right, kind.encoder]]
        return grown < 20_000 and now == counts

    encode(10_000)
    tracemalloc.start()
    try:
        # What is kept is kept each time; what another test's thread has at hand is not.
        assert any(flat() for _ in range(3))
    finally:
        tracemalloc.stop()


def test_a_program_goes_with_its_classes(tmp_path: Path) -> None:
    import weakref

    module = build(tmp_path, {"event.avsc": schema("Event")})["all"]
    check(event(module))
    gone = weakref.ref(module.Event)
    name = module.__name__
    del sys.modules[name]
    delattr(sys.modules[name.rpartition(".")[0]], name.rpartition(".")[2])
    del module
    for _ in range(3):
        gc.collect()
    assert gone() is None


@pytest.mark.parametrize(
    "given",
    [
        {"nodes": ()},
        {"nodes": ((),)},
        {"nodes": (("nonsense",),)},
        {"nodes": (("int",),)},
        {"nodes": (("record", int, ()),)},
        {"nodes": (("record", 5, ()),)},
        {"nodes": (("record", uuid.UUID, (("int", 1),)),)},
        {"nodes": (("record", uuid.UUID, (("int", -1),)),)},
        {"nodes": (("record", uuid.UUID, (("hex", 0),)),)},
        {"nodes": (("record", uuid.UUID, ("int",)),)},
        {"nodes": (("record", uuid.UUID, (("int", 0),)), ("array", 7))},
        {"nodes": (("record", uuid.UUID, (("int", 0),)), ("union", ((0, 5, 0, 0),)))},
        {"nodes": (("record", uuid.UUID, (("int", 0),)), ("union", ((0, str, 1, 0),)))},
        {"nodes": (("record", uuid.UUID, (("int", 0),)), ("enum", str, (5,)))},
        {"nodes": (("record", uuid.UUID, (("int", 0),)), ("uuid", uuid.UUID, ()))},
        {"nodes": (("record", uuid.UUID, (("int", 0),)),), "time": ("int",)},
        {"nodes": (("record", uuid.UUID, (("int", 0),)),), "keys": (("int", "no"),)},
        {"nodes": (("record", uuid.UUID, (("int", 0),)),), "keys": ((),)},
        {"nodes": (("record", uuid.UUID, (("int", 0),)),), "keys": (5,)},
    ],
)
def test_a_description_that_makes_no_sense_is_refused(given: dict[str, Any]) -> None:
    from headworks._native._encoder import Program

    rest = {"time": None, "keys": (), "encode": repr, "message": repr, "key": None}
    with pytest.raises(TypeError):
        Program(**{**rest, **given})
