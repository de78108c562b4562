"""The numbers of a load's rows: chosen, ordered, and counted, compiled and not."""

from __future__ import annotations

import random
from array import array
from typing import Any

import pyarrow as pa
import pytest

from hadoop_loader._fetch.messages import FetchedMessage, MessageColumns
from hadoop_loader._fetch.row_numbers import (
    choose_inside,
    memory_of,
    number_array,
    of_ints,
    order_rows,
    sum_windows,
)
from headworks._native import COMPILED, rows
from tests.tools import needs

pytestmark = pytest.mark.unit

FORMS = [False, *([True] if COMPILED else [])]
LEAST, MOST = -(1 << 63), (1 << 63) - 1


def plain(order: Any, runs: list[tuple[int, int, int]]) -> tuple[list[int] | None, Any]:
    return None if order is None else order.to_pylist(), runs


@pytest.mark.parametrize("compiled", FORMS)
def test_rows_are_ordered_by_unit_and_keep_their_order_in_it(compiled: bool) -> None:
    numbers = of_ints([25, -1, 19, 3, -10, -11, 20])
    order, runs = plain(*order_rows(numbers, 10, compiled=compiled))
    assert order == [5, 1, 4, 3, 2, 0, 6]
    assert runs == [(-2, 0, 1), (-1, 1, 2), (0, 3, 1), (1, 4, 1), (2, 5, 2)]
    assert order_rows(numbers.take(of_ints(order)), 10, compiled=compiled) == (None, runs)
    assert order_rows(numbers.slice(2, 1), 10, compiled=compiled) == (None, [(1, 0, 1)])
    assert order_rows(of_ints([]), 10, compiled=compiled) == (None, [])


@needs("extensions")
@pytest.mark.parametrize("spread", [1, 40, 70_000, 1 << 40, MOST])
@pytest.mark.parametrize("unit", [1, 7, 86_400_000_000, MOST])
def test_compiled_and_python_order_alike(spread: int, unit: int) -> None:
    chance = random.Random(f"{spread} {unit}")
    for _ in range(20):
        drawn = [chance.randint(-spread, spread) for _ in range(chance.randrange(60))]
        if spread == MOST:
            drawn += [LEAST, MOST, LEAST + 1, 0]
        numbers = of_ints(drawn)
        assert plain(*order_rows(numbers, unit, compiled=True)) == plain(
            *order_rows(numbers, unit, compiled=False)
        )


@pytest.mark.parametrize("compiled", FORMS)
def test_windows_are_counted_in_runs(compiled: bool) -> None:
    times, starts = of_ints([1, 9, 10, 2]), of_ints([0, -1, 5, 6])
    ends = of_ints([5, -1, 6, 9])
    found = sum_windows(times, starts, ends, 10, compiled=compiled)
    assert found == [(0, 2, 5), (1, 1, 1), (0, 1, 3)]


@pytest.mark.parametrize("compiled", FORMS)
def test_rows_inside_the_bounds_of_their_partitions_are_chosen(compiled: bool) -> None:
    partitions = number_array(array("i", [0, 0, 2, 2, 1, 3]), pa.int32())
    offsets = of_ints([4, 5, 7, 8, 0, 0])
    found = choose_inside(partitions, offsets, {0: (5, 9), 2: (0, 8)}, compiled=compiled)
    assert found is not None
    assert found.to_pylist() == [1, 2]
    inside = {0: (0, 9), 1: (0, 1), 2: (7, 9), 3: (0, 1)}
    assert choose_inside(partitions, offsets, inside, compiled=compiled) is None
    nothing = choose_inside(partitions, offsets, {}, compiled=compiled)
    assert nothing is not None
    assert nothing.to_pylist() == []


@needs("extensions")
def test_nonsense_is_refused() -> None:
    eight, four = bytes(8), bytes(4)
    for unit in (0, -1):
        with pytest.raises(ValueError, match="at least 1"):
            rows.order_rows(eight, unit)
        with pytest.raises(ValueError, match="at least 1"):
            rows.sum_windows(eight, eight, eight, unit)
    with pytest.raises(ValueError, match="64 bits"):
        rows.order_rows(four, 1)
    with pytest.raises(ValueError, match="64 bits"):
        rows.sum_windows(eight, eight, b"", 1)
    with pytest.raises(ValueError, match="pairs"):
        rows.choose_inside(eight, eight, b"")


def test_numbers_share_the_memory_of_what_they_are_of() -> None:
    numbers = of_ints([1, 2, 3]).slice(1)
    assert memory_of(numbers).cast("q").tolist() == [2, 3]


def test_a_selection_of_a_selection_is_of_the_same_messages() -> None:
    given = [FetchedMessage(n % 3, n, n, None if n % 2 else b"k", b"v%d" % n) for n in range(9)]
    all_ = MessageColumns.of(given)
    assert list(all_) == given
    assert list(all_[2:7][1:4]) == given[3:6]
    assert list(all_[2:2]) == list(all_[5:3]) == []
    assert list(all_[1:8:3]) == given[1:8:3]
    assert all_[-1] == given[-1]
    part = all_[2:8]
    chosen = part.where(of_ints([5, 0, 3]))
    assert list(chosen) == [given[7], given[2], given[5]]
    assert list(chosen.where(of_ints([2, 0]))) == [given[5], given[7]]
    assert list(chosen[1:]) == [given[2], given[5]]
    assert list(chosen.without([1])) == [given[7], given[5]]
    assert chosen.offsets.to_pylist() == [7, 2, 5]
    assert part.partitions.to_pylist() == [2, 0, 1, 2, 0, 1]
    with pytest.raises(IndexError):
        chosen[3]
