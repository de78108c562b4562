"""Record batches: what is built reads back, and noise is never taken for one."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headworks._kafka.records import (
    Codec,
    InvalidBatchError,
    Record,
    check_batch,
    encode_batch,
    iter_batches,
    iter_records,
    patch_placement,
    restamp_append_time,
)
from headworks._kafka.records.varint import read_unsigned, read_varint, write_unsigned, write_varint

pytestmark = pytest.mark.unit

_bytes = st.none() | st.binary(max_size=40)
_records = st.lists(
    st.builds(
        Record,
        st.just(0),
        st.integers(-(1 << 40), 1 << 41),
        _bytes,
        _bytes,
        st.lists(st.tuples(st.text(max_size=5), _bytes), max_size=3).map(tuple),
    ),
    min_size=1,
    max_size=8,
)


@given(_records, st.sampled_from(Codec), st.integers(0, 1 << 50))
def test_what_is_built_reads_back_equal(records: list[Record], codec: Codec, base: int) -> None:
    data = encode_batch(records, base_offset=base, codec=codec)
    batch = check_batch(data)
    assert batch.size == len(data)
    assert list(iter_records(data, batch)) == [
        record._replace(offset=base + number) for number, record in enumerate(records)
    ]


@given(_records, st.data())
def test_any_changed_byte_after_the_leader_epoch_is_noticed(
    records: list[Record], data: st.DataObject
) -> None:
    good = encode_batch(records)
    position = data.draw(st.integers(16, len(good) - 1))
    bad = bytearray(good)
    bad[position] ^= data.draw(st.integers(1, 255))
    with pytest.raises(InvalidBatchError):
        check_batch(bad)


@given(st.binary(max_size=300))
def test_noise_is_never_taken_for_a_batch_and_never_crashes(noise: bytes) -> None:
    with pytest.raises(InvalidBatchError):
        check_batch(noise)


@given(st.integers(-(1 << 63), (1 << 63) - 1))
def test_varints(value: int) -> None:
    assert read_varint(write_varint(value), 0) == (value, len(write_varint(value)))
    if value >= 0:
        assert read_unsigned(b"x" + write_unsigned(value), 1)[0] == value


@pytest.mark.parametrize("data", [b"", b"\x80", b"\xff" * 11])
def test_bad_varints_are_refused(data: bytes) -> None:
    with pytest.raises(ValueError, match="varint"):
        read_varint(data, 0)


def test_a_buffer_may_end_inside_a_batch() -> None:
    record = Record(0, 5, b"k", b"v", ())
    one, two = encode_batch([record]), encode_batch([record] * 3, base_offset=1)
    whole = one + two
    for cut in range(len(one), len(whole)):
        assert [b.base_offset for b in iter_batches(whole[:cut])] == [0]
    assert [b.base_offset for b in iter_batches(whole)] == [0, 1]


def test_iter_batches_tells_damage_from_an_early_end() -> None:
    good = bytearray(encode_batch([Record(0, 5, b"k", b"v", ())]))
    good[-1] ^= 1
    with pytest.raises(InvalidBatchError) as caught:
        list(iter_batches(good))
    assert caught.value.reason == "crc"
    assert len(list(iter_batches(good, verify=False))) == 1


def test_placement_lies_outside_the_crc() -> None:
    data = bytearray(encode_batch([Record(0, 5, b"k", b"v", ())] * 2))
    patch_placement(data, 0, 77, check_batch(data).length, 3)
    batch = check_batch(data)
    assert (batch.base_offset, batch.leader_epoch, batch.last_offset) == (77, 3, 78)


def test_append_time_changes_what_readers_see_and_keeps_the_crc_true() -> None:
    data = bytearray(b"pad" + encode_batch([Record(0, 5, b"k", b"v", ())] * 2))
    restamp_append_time(data, check_batch(data, 3), 999)
    batch = check_batch(data, 3)
    assert batch.base_timestamp == 5
    assert {record.timestamp for record in iter_records(data, batch)} == {999}


def test_a_record_that_runs_over_its_batch_is_damage() -> None:
    data = encode_batch([Record(0, 5, b"k", b"v", ())])
    batch = check_batch(data)._replace(record_count=2)
    with pytest.raises(InvalidBatchError):
        list(iter_records(data, batch))


@pytest.mark.parametrize("codec", [c for c in Codec if c])
def test_decompression_is_bounded(codec: Codec) -> None:
    data = encode_batch([Record(0, 5, None, bytes(100_000), ())], codec=codec)
    with pytest.raises(InvalidBatchError, match="exceed"):
        list(iter_records(data, check_batch(data), limit=1000))


def test_every_codec_number_has_a_reader_or_a_reason() -> None:
    data = encode_batch([Record(0, 5, None, b"v", ())])
    batch = check_batch(data)
    for codec in (Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD, 7):
        with pytest.raises(InvalidBatchError):
            list(iter_records(data, batch._replace(attributes=int(codec))))
