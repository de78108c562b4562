"""The keys and values of a batch by schema id: the compiled reader against the one in Python."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headworks import _wire
from headworks._broker.handlers import framed_records as tested
from headworks._broker.handlers.framed_records import FramedRecords, framed_records
from headworks._kafka.records import InvalidBatchError, Record, encode_batch, iter_batches
from headworks._kafka.records.record import record_data
from headworks._native import decoder
from tests.headworks.decoding.damaged_data import damaged
from tests.tools import needs

pytestmark = pytest.mark.unit

parts = st.one_of(
    st.none(),
    st.binary(max_size=12),
    st.builds(
        lambda schema_id, datum: _wire.prefix(schema_id) + datum,
        st.sampled_from([0, 7, 8, 0xFFFF_FFFF]),
        st.binary(max_size=200),
    ),
)
headers = st.lists(st.tuples(st.text(max_size=5), st.none() | st.binary(max_size=5)), max_size=3)
drawn = st.lists(
    st.builds(Record, st.just(0), st.just(5), parts, parts, headers.map(tuple)),
    min_size=1,
    max_size=8,
)


def contents(found: FramedRecords) -> list[object]:
    return [
        [found.misnumbered]
        + [
            (list(memoryview(one.ids).cast("q")), [one.datum(i) for i in range(len(one.ids) // 8)])
            for one in (found.keys, found.values)
        ]
    ]


@needs("extensions")
@given(drawn, st.randoms(use_true_random=False))
def test_both_readers_find_the_same(records: list[Record], chance: random.Random) -> None:
    raw = encode_batch(records)
    (batch,) = iter_batches(raw)
    data = record_data(raw, batch)
    assert decoder.find_frames(data, len(records)) is not None
    assert contents(framed_records(data, batch)) == contents(tested._parsed(data, batch))
    for _ in range(10):
        broken = damaged(chance, data)
        try:
            expected = contents(tested._parsed(broken, batch))
        except InvalidBatchError:
            with pytest.raises(InvalidBatchError):
                framed_records(broken, batch)
        else:
            assert contents(framed_records(broken, batch)) == expected


def test_a_record_that_says_another_number_is_named() -> None:
    raw = encode_batch([Record(0, 5, None, b"a", ()), Record(1, 5, None, b"b", ())])
    (batch,) = iter_batches(raw)
    first = record_data(raw, batch)[: len(record_data(raw, batch)) // 2]
    found = framed_records(first + first, batch)
    assert found.misnumbered == ((1, 0),)
