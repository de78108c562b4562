"""Record batches, format v2: read, check, iterate and build them; pure functions over bytes."""

from headworks._kafka.records.batch import (
    HEADER_SIZE,
    Batch,
    InvalidBatchError,
    check_batch,
    iter_batches,
    patch_placement,
    read_header,
    restamp_append_time,
)
from headworks._kafka.records.build import encode_batch, encode_records
from headworks._kafka.records.compression import Codec, decompress, decompress_into
from headworks._kafka.records.record import Record, iter_records

__all__ = [
    "HEADER_SIZE",
    "Batch",
    "Codec",
    "InvalidBatchError",
    "Record",
    "check_batch",
    "decompress",
    "decompress_into",
    "encode_batch",
    "encode_records",
    "iter_batches",
    "iter_records",
    "patch_placement",
    "read_header",
    "restamp_append_time",
]
