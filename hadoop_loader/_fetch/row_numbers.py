"""Columns of numbers without NumPy: Arrow arrays over plain memory, and what is asked of them.

Rules:

- The functions here define the result. `_rows.c` is their compiled form.
- Numbers are divided downwards, so that times before 1970 have a day as well.
- `pa.array` and `pa.scalar` import pandas if it is installed, and ask it about what they get. That
  takes a third of a second of a core in each new worker. So numbers change sides by their memory.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Mapping
from itertools import groupby
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from headworks._native import COMPILED, rows

Numbers = Any  # an Arrow array of 64-bit numbers without nulls
Buffer = Any  # an object with the buffer protocol
Run = tuple[int, int, int]


def int64s(memory: Buffer) -> Numbers:
    """Return memory as an array of 64-bit numbers."""
    return number_array(memory, pa.int64())


def number_array(memory: Buffer, type_: pa.DataType) -> Any:
    """Return memory as an array of a type of fixed width."""
    cells = pa.py_buffer(memory)
    return pa.Array.from_buffers(type_, 8 * cells.size // type_.bit_width, [None, cells])


def of_ints(numbers: Iterable[int]) -> Numbers:
    """Return an array of Python's numbers."""
    return int64s(array("q", numbers))


def scalar(number: int) -> Any:
    """Return a 64-bit number as Arrow's functions take it."""
    return of_ints([number])[0]


def memory_of(numbers: Numbers) -> memoryview:
    """Return the memory of an array of a type of fixed width without nulls."""
    assert not numbers.null_count
    width = numbers.type.bit_width // 8
    whole = memoryview(numbers.buffers()[1])
    return whole[width * numbers.offset : width * (numbers.offset + len(numbers))]


def as_int64s(numbers: Any) -> Numbers:
    """Return an array of timestamps, or of other 64-bit cells, as numbers."""
    return int64s(memory_of(numbers))


def rows_where(mask: Any) -> Numbers:
    """Return the numbers of the rows that are true in a mask."""
    return pc.indices_nonzero(mask).cast(pa.int64())


def order_rows(numbers: Numbers, unit: int, *, compiled: bool = COMPILED) -> tuple[Any, list[Run]]:
    """Return the order of rows by number // unit, None if they are in it, and their runs.

    Rows of one unit keep their order. A run is (unit, first row in the order, number of rows).
    """
    if compiled:
        order, runs = rows.order_rows(memory_of(numbers), unit)
        return None if order is None else int64s(order), runs
    units = [number // unit for number in numbers.to_pylist()]
    by_unit = sorted(range(len(units)), key=units.__getitem__)
    found: list[Run] = []
    start = 0
    for which, run in groupby(by_unit, key=units.__getitem__):
        count = len(list(run))
        found.append((which, start, count))
        start += count
    return None if by_unit == list(range(len(units))) else of_ints(by_unit), found


def sum_windows(
    times: Numbers, starts: Numbers, ends: Numbers, unit: int, *, compiled: bool = COMPILED
) -> list[Run]:
    """Return (window, rows, bytes) of each run of rows with the same time // unit."""
    if compiled:
        return rows.sum_windows(memory_of(times), memory_of(starts), memory_of(ends), unit)
    each = zip(times.to_pylist(), starts.to_pylist(), ends.to_pylist(), strict=True)
    found: list[Run] = []
    for window, run in groupby(each, key=lambda one: one[0] // unit):
        sizes = [end - start for _, start, end in run]
        found.append((window, len(sizes), sum(sizes)))
    return found


def choose_inside(
    partitions: Any,
    offsets: Numbers,
    bounds: Mapping[int, tuple[int, int]],
    *,
    compiled: bool = COMPILED,
) -> Numbers | None:
    """Return the numbers of the rows inside the bounds of their partitions, None if all are.

    A partition without bounds has no row inside.
    """
    if compiled:
        limits = array("q", bytes(16 * (max(bounds, default=-1) + 1)))
        for partition, (start, end) in bounds.items():
            limits[2 * partition], limits[2 * partition + 1] = start, end
        chosen = rows.choose_inside(memory_of(partitions), memory_of(offsets), limits)
        return None if chosen is None else int64s(chosen)
    found = []
    for at, place in enumerate(zip(partitions.to_pylist(), offsets.to_pylist(), strict=True)):
        start, end = bounds.get(place[0], (0, 0))
        if start <= place[1] < end:
            found.append(at)
    return None if len(found) == len(offsets) else of_ints(found)
