"""The versions of all subjects as the last load read them, in a file of the warehouse.

Rules:

- Only speed depends on the file. A missing or damaged file, and one that another release wrote, is
  empty: the registry is asked for every version, and the file is written again.
- The file has the SHA-256 of its content before it, so it may be replaced in place.
- A subject whose registry reports no time of registration is not stored: another registry could
  have the same numbers and ids.
"""

from __future__ import annotations

import hashlib
import io
import json
import logging
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import groupby
from operator import itemgetter
from typing import Any

import pyarrow as pa

from hadoop_loader._storage.filesystem import AnyPath, open_for_write, read_bytes
from hadoop_loader._tasks.load_task import WriterSchema
from headworks.errors import HeadworksError

_FORMAT = 1
_DIGEST_BYTES = 32
_HEAD = b"headworks"  # the key of the head in the metadata of the table
_TEXT = pa.large_string()
_SCHEMA = pa.schema(
    [
        ("subject", pa.dictionary(pa.int32(), pa.string())),
        ("latest_version", pa.int64()),
        ("latest_id", pa.int64()),
        ("registered_ms", pa.int64()),
        ("version", pa.int64()),
        ("schema_id", pa.int64()),
        ("text", _TEXT),
        ("recursive", _TEXT),
    ]
)
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class KnownSubject:
    """The versions of a subject, as they were read."""

    latest: tuple[int, int]  # number and schema id of the latest live version
    registered_ms: int | None  # when it was registered
    numbers: tuple[int, ...]  # of all versions, ascending
    writers: tuple[WriterSchema, ...]


class VersionCache:
    """The file `path`; `recursive_json` is as in `RegistrySubjects`, which changes the texts."""

    def __init__(self, path: AnyPath, *, recursive_json: bool) -> None:
        self._path = path
        self._head = json.dumps({"format": _FORMAT, "recursive_json": recursive_json}).encode()

    def read(self) -> dict[str, KnownSubject]:
        """Return the subjects by name; none if the file is missing, damaged, or of another kind."""
        try:
            content = read_bytes(self._path) if self._path.exists() else b""
        except (OSError, HeadworksError) as error:
            _log.warning("%s cannot be read: %s", self._path, error)
            return {}
        digest, body = content[:_DIGEST_BYTES], memoryview(content)[_DIGEST_BYTES:]
        if hashlib.sha256(body).digest() != digest:
            return {}
        table = pa.ipc.open_file(pa.BufferReader(pa.py_buffer(body))).read_all()
        if (table.schema.metadata or {}).get(_HEAD) != self._head:
            return {}
        columns = (table.column(name).to_pylist() for name in _SCHEMA.names)
        return dict(_subjects(zip(*columns, strict=True)))

    def write(self, subjects: Mapping[str, KnownSubject]) -> None:
        """Replace the file. A failure is logged, because no load depends on it."""
        try:
            with open_for_write(self._path) as file:
                body = self._encoded(subjects)
                file.write(hashlib.sha256(body).digest())
                file.write(body)
        except (OSError, HeadworksError) as error:
            _log.warning("%s cannot be written: %s", self._path, error)

    def _encoded(self, subjects: Mapping[str, KnownSubject]) -> bytes:
        known = [(name, s) for name, s in subjects.items() if s.registered_ms is not None]
        rows = [w for _, s in known for w in s.writers]
        columns: list[list[Any]] = [
            [name for name, s in known for _ in s.writers],
            [s.latest[0] for _, s in known for _ in s.writers],
            [s.latest[1] for _, s in known for _ in s.writers],
            [s.registered_ms for _, s in known for _ in s.writers],
            [w.version for w in rows],
            [w.schema_id for w in rows],
            [w.text for w in rows],
            [w.recursive for w in rows],
        ]
        arrays = [
            pa.array(column, type=kind) for column, kind in zip(columns, _SCHEMA.types, strict=True)
        ]
        table = pa.Table.from_arrays(arrays, schema=_SCHEMA.with_metadata({_HEAD: self._head}))
        found = io.BytesIO()
        options = pa.ipc.IpcWriteOptions(compression="zstd")
        with pa.ipc.new_file(found, table.schema, options=options) as writer:
            writer.write_table(table)
        return found.getvalue()


def _subjects(rows: Iterator[tuple[Any, ...]]) -> Iterator[tuple[str, KnownSubject]]:
    """Yield the subjects of rows, which are together for each subject."""
    for (name, number, schema_id, registered_ms), some in groupby(rows, itemgetter(0, 1, 2, 3)):
        writers = tuple(WriterSchema(id_, version, text, r) for *_, version, id_, text, r in some)
        numbers = tuple(sorted(one.version for one in writers))
        yield name, KnownSubject((number, schema_id), registered_ms, numbers, writers)
