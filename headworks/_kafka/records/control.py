"""Control batches: the markers that end a transaction in a partition.

A marker is a batch of one record, with the flags TRANSACTIONAL and CONTROL. Its key is
`version i16, type i16`, its value `version i16, coordinator epoch i32` (Kafka's
`EndTransactionMarker`, KIP-98). No reader takes it for a message.
"""

from __future__ import annotations

import struct

from headworks._kafka.records.batch import CONTROL, TRANSACTIONAL, Batch, InvalidBatchError
from headworks._kafka.records.build import encode_batch
from headworks._kafka.records.record import Record, iter_records

_KEY = struct.Struct(">hh")
_VALUE = struct.Struct(">hi")
_ABORT, _COMMIT = 0, 1
_NO_SEQUENCE = -1


def encode_marker(
    producer_id: int, epoch: int, *, commit: bool, coordinator_epoch: int, timestamp: int
) -> bytearray:
    """Return the marker that ends the transaction of a producer; `timestamp` in ms."""
    key = _KEY.pack(0, _COMMIT if commit else _ABORT)
    record = Record(0, timestamp, key, _VALUE.pack(0, coordinator_epoch), ())
    producer = (producer_id, epoch, _NO_SEQUENCE)
    return bytearray(encode_batch([record], producer=producer, attributes=TRANSACTIONAL | CONTROL))


def commits(data: bytes, marker: Batch) -> bool | None:
    """Return whether a marker commits (or aborts); None for a control batch of another type.

    `data` are the bytes of the batch alone. Raises InvalidBatchError for damage.
    """
    record = next(iter_records(data, marker._replace(position=0)), None)
    if record is None or record.key is None or len(record.key) < _KEY.size:
        raise InvalidBatchError("records", "a control batch has no type")
    _, kind = _KEY.unpack_from(record.key)
    return kind == _COMMIT if kind in (_ABORT, _COMMIT) else None
