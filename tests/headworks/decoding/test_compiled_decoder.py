"""The compiled decoder by itself: hostile descriptions and bytes, threads, and want of memory.

Its results are compared with the generated Python in tests/hadoop_loader/test_decode.py.
"""

from __future__ import annotations

import gc
import itertools
import struct
import threading
from array import array
from typing import Any

import pytest

from headworks._native import decoder
from tests.tools import needs
from tests.want_of_memory import fail_each_allocation

pytestmark = [
    pytest.mark.unit,
    needs("extensions"),
]


def node(
    kind: str,
    below: tuple[Any, ...] = (),
    column: int = -1,
    size: int = 0,
    data: bytes | None = None,
    scale: int = 0,
    value: Any = None,
) -> tuple[Any, ...]:
    return kind, below, column, size, data, scale, value


def program(
    nodes: tuple[Any, ...], columns: tuple[Any, ...] = (), tops: tuple[Any, ...] = ()
) -> decoder.ColumnProgram:
    return decoder.ColumnProgram(nodes=nodes, columns=columns, tops=tops, seed=5)


def decode(made: decoder.ColumnProgram, *datums: bytes) -> Any:
    ends, at = [], 0
    for datum in datums:
        at += len(datum)
        ends.append(at)
    found = made.decode(b"".join(datums), array("q", [0, *ends[:-1]]), array("q", ends))
    return contents(*found)


def contents(columns: Any, bad: list[int], _: list[int]) -> tuple[Any, list[int]]:
    """Return decoded columns, with bytes in place of buffers."""
    found = (
        tuple(one if one is None or isinstance(one, int) else bytes(one) for one in column)
        for column in columns
    )
    return tuple(found), bad


TEXT = ("variable", ())
LONG = ("word64", ())
MAP = (("items", (1, 2)), TEXT, LONG)
MAP_NODES = (node("map", (1,), 0, 2), node("integer", (), 2, 64))
LIMITS = struct.pack(">hh", -1000, 1000)


@pytest.mark.parametrize(
    ("nodes", "columns", "tops"),
    [
        ((), (), ()),
        (("steps",), (), ()),
        ((5,), (), ()),
        ((node("nonsense"),), (), ()),
        ((node("steps", (1,)),), (), ()),
        ((node("steps", (-1,)),), (), ()),
        ((node("steps", ("0",)),), (), ()),
        ((node("steps", column=0),), (), ()),
        ((node("steps", column=0),), (LONG,), ()),
        ((node("as-double", size=64),), (), ()),
        ((node("map", (0,), size=1),), (), ()),
        ((node("keys", (0,), size=1),), (), ()),
        ((node("keys", (0,), 0, 1),), (LONG,), ()),
        ((node("keys", (), 0, 1),), (TEXT,), ()),
        ((node("decimal", size=-1),), (), ()),
        ((node("integer", column=0, size=64),), (("word32", ()),), ()),
        ((node("integer", column=0, size=64),), (TEXT,), ()),
        ((node("boolean", column=0),), (LONG,), ()),
        ((node("text", column=0, size=-1),), (LONG,), ()),
        ((node("double", column=0),), (("word128", ()),), ()),
        ((node("decimal", column=0, size=-1),), (("word128", ()),), ()),
        ((node("decimal", column=0, size=-1, data=b"123"),), (("word128", ()),), ()),
        ((node("wide-decimal", column=0, size=-1, data=LIMITS, scale=-1),), (TEXT,), ()),
        ((node("constant", column=0),), (LONG,), ()),
        ((node("constant", column=0, data=b"seven"),), (LONG,), ()),
        ((node("constant", column=0, data=b""),), (("items", (1,)), LONG), ()),
        ((node("constant-list", column=0),), (("items", ()),), ()),
        ((node("list", (0,), 0, 1),), (LONG,), ()),
        ((node("list", (), 0, 1),), (("items", (1,)), LONG), ()),
        ((node("list", (0,), 0, -1),), (("items", (1,)), LONG), ()),
        ((node("map", (0,), 0, 1),), (("items", (1, 2)), LONG, LONG), ()),
        ((node("map", (0,), 0, 1),), (("items", (1,)), TEXT), ()),
        ((node("skip-number", column=0),), (LONG,), ()),
        ((node("steps"),), (5,), ()),
        ((node("steps"),), (("nonsense", ()),), ()),
        ((node("steps"),), (("items", (0,)),), ()),
        ((node("steps"),), (("items", (1,)),), ()),
        ((node("steps"),), (("word64", (1,)), LONG), ()),
        ((node("steps"),), (LONG,), (1,)),
        ((node("steps"),), (LONG,), ("0",)),
    ],
)
def test_a_description_that_makes_no_sense_is_refused(nodes: Any, columns: Any, tops: Any) -> None:
    with pytest.raises(TypeError):
        program(nodes, columns, tops)


def test_spans_outside_the_data_are_bad_datums() -> None:
    made = program((node("integer", (), 0, 64),), (LONG,), (0,))
    starts, ends = [0, -1, 1, 3, 2, 1 << 62], [1, 1, 4, 2, 3, 1 << 63 - 1]
    columns, bad = contents(*made.decode(b"\2\4\6", array("q", starts), array("q", ends)))
    assert bad == [1, 2, 3, 5]
    assert columns == ((2, 0, None, struct.pack("=qq", 1, 3), None),)
    with pytest.raises(ValueError, match="as many of each"):
        made.decode(b"", array("q", [0]), array("q"))
    with pytest.raises(ValueError, match="64 bits"):
        made.decode(b"", b"1234", b"1234")
    for wrong in ("text", 5):
        with pytest.raises(TypeError):
            made.decode(wrong, array("q"), array("q"))


def test_every_cut_of_a_datum_is_bad_and_leaves_nothing() -> None:
    made = program(MAP_NODES, MAP, (0,))
    entries = [(b"%d" % n * (n % 9), n << 7 * (n % 9)) for n in range(40)]
    entries = [(b"k%d-" % n + key, value) for n, (key, value) in enumerate(entries)]
    datum = varint(len(entries))
    datum += b"".join(varint(len(key)) + key + varint(value) for key, value in entries) + b"\0"
    cuts = [datum[:size] for size in range(len(datum))]
    columns, bad = decode(made, datum, *cuts, datum + b"\0", datum)
    assert bad == list(range(1, len(datum) + 2))
    assert [column[0] for column in columns] == [2, 80, 80]
    assert columns[2][3] == struct.pack("=80q", *[value for _, value in entries] * 2)
    assert columns[1][4] == b"".join(key for key, _ in entries) * 2


def test_a_datum_that_must_fail_has_the_node_where_it_did() -> None:
    branches = (node("fail"), node("list", (4,), 0), node("fail"))
    nodes = (node("union", (1, 2, 3)), *branches, node("integer", (), 1, 64))
    made = program(nodes, (("items", (1,)), LONG), (0,))
    datums = [b"\0", b"\2\0", b"\4\7", b"\6", b"\2\2", b""]
    ends = array("q", itertools.accumulate(map(len, datums)))
    _, bad, failed = made.decode(b"".join(datums), array("q", [0, *ends[:-1]]), ends)
    assert dict(zip(bad, failed, strict=True)) == {0: 1, 2: 3, 3: -1, 4: -1, 5: -1}


def test_hostile_counts_are_refused_before_anything_is_allocated() -> None:
    made = program(MAP_NODES, MAP, (0,))
    for count in (1 << 20, (1 << 63) - 1, -1, -(1 << 40), -(1 << 63)):
        assert decode(made, varint(count) + bytes(9))[1] == [0]
    empty = program(
        (node("list", (1,), 0), node("steps")), (("items", (1,)), ("presence", ())), (0,)
    )
    assert decode(empty, varint(100_001) + b"\0", varint(50_001) * 2 + b"\0")[1] == [0, 1]


def test_nesting_has_an_end() -> None:
    tree = (node("skip-blocks", (0,), size=1),)
    assert decode(program(tree), b"\2" * 900 + b"\0" * 901)[1] == []
    assert decode(program(tree), b"\2" * 1_000_000)[1] == [0]


def test_what_was_decoded_stays_when_the_program_goes() -> None:
    made = program((node("text", (), 0, -1),), (TEXT,), (0,))
    found = []
    for texts in ([b"ab", b""], [b"c" * 40] * 9, [], [b"d" * size for size in range(70)]):
        data = b"".join(varint(len(text)) + text for text in texts)
        ends = array("q", itertools.accumulate(len(varint(len(t))) + len(t) for t in texts))
        starts = array("q", [0, *ends[:-1]] if texts else [])
        decoded: Any = made.decode(data, starts, ends)
        ((column,), bad, _) = decoded
        assert bad == []
        found.append((texts, column))
    del made
    gc.collect()
    for texts, (count, nulls, valid, cells, text) in found:
        assert (count, nulls, valid) == (len(texts), 0, None)
        assert bytes(text) == b"".join(texts)
        lengths = map(len, texts)
        assert memoryview(cells).cast("i").tolist() == [*itertools.accumulate(lengths, initial=0)]
        assert memoryview(cells).readonly


def test_two_threads_do_not_share_a_program() -> None:
    made = program((node("text", (), 0, -1),), (TEXT,), (0,))
    datum = varint(1 << 16) + b"x" * (1 << 16)
    data, count = datum * 300, 300
    starts = array("q", [n * len(datum) for n in range(count)])
    ends = array("q", [(n + 1) * len(datum) for n in range(count)])
    outcomes: list[Any] = []

    def run() -> None:
        for _ in range(5):
            try:
                decoded: Any = made.decode(data, starts, ends)
                [(*_, text)], *_ = decoded
                outcomes.append(len(memoryview(text)))
            except RuntimeError as error:
                outcomes.append(str(error))

    threads = [threading.Thread(target=run) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert set(outcomes) <= {count << 16, "another thread decodes with this program"}
    assert count << 16 in outcomes


def test_a_number_is_peeked_at_and_nothing_behind_it_is_read() -> None:
    nodes = (node("steps", (1, 2)), node("text", (), -1, -1), node("integer", (), 0, 64))
    made = program(nodes, (LONG,), (0,))
    data = b"\x02a\x0a" + b"\x02b\x0c" + b"garbage" + b"\x7f"
    starts, ends = [0, 3, 13, -1, 3, 0], [3, 13, 14, 2, 99, 3]
    found = made.peek(data, array("q", starts), array("q", ends))
    assert memoryview(found).cast("q").tolist() == [5, 6, 6, 6, 6, 5]
    with pytest.raises(ValueError, match="as many of each"):
        made.peek(data, array("q", [0]), array("q"))
    text = program((node("text", (), 0, -1),), (TEXT,), (0,))
    with pytest.raises(ValueError, match="numbers of 64 bits"):
        text.peek(data, array("q", [0]), array("q", [3]))


def test_schema_ids_are_found_before_values_that_have_one() -> None:
    data = b"\0\xff\xff\xff\xffx" + b"\1\0\0\0\7x"
    starts, ends = [0, 0, 0, -1, 6, 8, 7], [6, 5, 4, -1, 12, 20, 12]
    found = decoder.find_ids(data, array("q", starts), array("q", ends))
    none = -1
    expected = [2**32 - 1, 2**32 - 1, none, none, none, none, 7 << 8 | ord("x")]
    assert memoryview(found).cast("q").tolist() == expected
    with pytest.raises(ValueError, match="as many of each"):
        decoder.find_ids(data, array("q", [0]), array("q"))


@pytest.mark.e2e
def test_want_of_memory_is_told_and_leaves_nothing() -> None:
    data = varint(30) + b"".join(varint(3) + b"%3d" % n + b"\2" for n in range(30)) + b"\0"
    starts, ends = array("q", [0, 0]), array("q", [len(data), len(data)])
    body = b"".join(
        varint(9) + b"\0\0" + varint(n) + varint(-1) + varint(2) + b"ab\0\0" for n in (0, 1)
    )

    def call() -> tuple[Any, Any]:
        made = decoder.ColumnProgram(nodes=MAP_NODES, columns=MAP, tops=(0,), seed=5)
        found = made.decode(data, starts, ends)
        return found, decoder.find_records(body, ((len(body), 2, 0, 0, -1),))

    def check(made: tuple[Any, Any]) -> None:
        found, records = made
        assert [column[0] for column in found[0]] == [2, 60, 60]
        assert records[0] == -1

    fail_each_allocation(call, least=20, calls=60, check=check)


def varint(number: int) -> bytes:
    rest, out = (number << 1) ^ (number >> 63), bytearray()
    rest &= (1 << 64) - 1
    while rest > 127:
        out.append(rest & 127 | 128)
        rest >>= 7
    return bytes([*out, rest])


def record(delta: int, key: bytes | None, value: bytes | None, time: int = 0) -> bytes:
    body = b"\0" + varint(time) + varint(delta)
    for piece in (key, value):
        body += varint(-1) if piece is None else varint(len(piece)) + piece
    return varint(len(body) + 1) + body + b"\0"


def test_records_are_found_where_they_are() -> None:
    first = record(0, None, b"ab") + record(1, b"k", None, time=-5)
    second = record(3, b"", b"", time=7)
    batches = ((len(first), 2, 10, 1000, -1), (len(second), 1, 20, 2000, 5555))
    wrong, *arrays = decoder.find_records(first + second, batches)
    offsets, times, *spans = (memoryview(each).cast("q").tolist() for each in arrays)
    assert (wrong, offsets, times) == (-1, [10, 11, 23], [1000, 995, 5555])
    keys, values = zip(*spans[:2], strict=True), zip(*spans[2:], strict=True)
    found = [
        [None if start < 0 else (first + second)[start:end] for start, end in each]
        for each in (keys, values)
    ]
    assert found == [[None, b"k", b""], [b"ab", None, b""]]


def test_times_and_offsets_stay_in_64_bits() -> None:
    most, least = (1 << 63) - 1, -(1 << 63)
    body = record(most, None, None, time=most) + record(least, None, None, time=least)
    _, offsets, times, *_ = decoder.find_records(body, ((len(body), 2, 5, -5, -1),))
    assert memoryview(offsets).cast("q").tolist() == [most, least + 5]
    assert memoryview(times).cast("q").tolist() == [253_402_300_799_999, 0]


def test_records_that_do_not_decode_are_told_by_their_batch() -> None:
    good, long = record(0, b"k", b"value"), record(0, b"k", bytes(30))
    for size in range(7, len(long)):
        body = good + long[:size]
        found = decoder.find_records(body, ((len(good), 1, 0, 0, -1), (size, 1, 0, 0, -1)))
        assert found[0] == 1
    for batches in (((99, 1, 0, 0, -1),), ((7, 2, 0, 0, -1),), ((-1, 0, 0, 0, -1),), (5,)):
        with pytest.raises(TypeError):
            decoder.find_records(good, batches)  # type: ignore[arg-type]
