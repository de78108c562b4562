"""Counts by schema id: in slots of their own, bounded, and beside files of before."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from headworks._audit_counting.counters import CounterFile, PendingIncrement, leftover_files
from headworks._audit_counting.outcomes import CONSUMED, DELIVERED
from headworks._audit_counting.schema_use import (
    MAX_SCHEMAS,
    NO_SCHEMA,
    SchemaIds,
    ids_of,
    written_id,
)
from headworks._wire import prefix

pytestmark = pytest.mark.unit


def by_ids(increments: list[PendingIncrement], outcome: str) -> dict[SchemaIds | None, int]:
    found: Counter[SchemaIds | None] = Counter()
    for one in increments:
        found[one.ids] += one.counts.get(outcome, 0)
    return dict(found)


@pytest.mark.parametrize(
    ("value", "schema_id"),
    [
        (prefix(7) + b"event", 7),
        (prefix(0xFFFF_FFFE), 0xFFFF_FFFE),
        (prefix(0xFFFF_FFFF), NO_SCHEMA),  # the number that stands for "not counted"
        (b"\x01\x00\x00\x00\x07", NO_SCHEMA),
        (b"\x00\x00\x07", NO_SCHEMA),
        (b"", NO_SCHEMA),
        (None, NO_SCHEMA),
    ],
)
def test_the_id_of_a_value_is_that_of_its_framing(value: bytes | None, schema_id: int) -> None:
    assert written_id(value) == schema_id
    assert ids_of(value, 9) == (schema_id, 9)


def test_two_schemas_of_a_window_have_their_own_increments(tmp_path: Path) -> None:
    counters = CounterFile(tmp_path)
    for schema_id, messages in ((7, 2), (8, 3)):
        for _ in range(messages):
            slot = counters.attempt("t", 5, 10, SchemaIds(schema_id))
            slot.resolve(DELIVERED)
    counters.count("t", 0, 1, CONSUMED, 4, SchemaIds(7, 8))
    counters.count("t", 0, 1, CONSUMED, 6, SchemaIds(7, 0))
    found = list(counters.increments())
    assert len({one.id for one in found}) == 4
    assert by_ids(found, "delivered")[SchemaIds(8)] == 3
    assert by_ids(found, "consumed")[SchemaIds(7, 8)] == 4
    assert by_ids(found, "consumed")[SchemaIds(7, 0)] == 6
    for one in found:
        counters.published(one)
    assert counters.settled()
    again = counters.attempt("t", 5, 10, SchemaIds(9))  # in a slot that was freed
    again.resolve(DELIVERED)
    assert by_ids(list(counters.increments()), "delivered") == {SchemaIds(9): 1}
    counters.close()


def test_a_dead_process_leaves_its_ids(tmp_path: Path) -> None:
    counters = CounterFile(tmp_path)
    name = "t" * 249  # the longest name leaves the ids alone
    counters.attempt(name, 5, 10, SchemaIds(0xFFFF_FFFE, 3))
    counters.close()
    [left] = leftover_files(tmp_path)
    [increment] = left.increments(owner_died=True)
    assert (increment.topic, increment.ids) == (name, (0xFFFF_FFFE, 3))
    left.close(remove=True)


def test_noise_that_looks_like_ids_stays_bounded(tmp_path: Path) -> None:
    counters = CounterFile(tmp_path)
    for schema_id in range(1, 10 * MAX_SCHEMAS):
        counters.attempt("t", 5, 10, SchemaIds(schema_id)).resolve(DELIVERED)
    found = list(counters.increments())
    assert len(found) == MAX_SCHEMAS + 1
    assert by_ids(found, "delivered")[None] == 9 * MAX_SCHEMAS - 1
    counters.attempt("u", 5, 10, SchemaIds(999)).resolve(DELIVERED)  # another topic has its own
    assert SchemaIds(999) in by_ids(list(counters.increments()), "delivered")
    for one in list(counters.increments()):
        counters.published(one)
    assert counters.settled()
    counters.close()
