"""The schemas of counted messages: written with which id, and read with which.

Rules:

- The id that a message was written with is that of its framing (`headworks._wire`), and nobody
  looks it up. Counting never fails for it: a value without framing has the id NO_SCHEMA.
- A counter file keeps at most MAX_SCHEMAS uses per topic. Bytes that only look like framing must
  not fill it, so all further uses count as UNLISTED: messages whose schema was not counted.
"""

from __future__ import annotations

import struct
from typing import Final, NamedTuple

from headworks._wire import HEADER_SIZE, MAGIC

NO_SCHEMA: Final = 0  # no schema id is 0
UNREGISTERED: Final = 0  # the id of a reader's schema that its registry does not have
MAX_SCHEMAS: Final = 64
_NO_READER: Final = (1 << 32) - 1
_UNLISTED_ID: Final = (1 << 32) - 1
_ID = struct.Struct(">I")


class SchemaIds(NamedTuple):
    """The id that messages were written with, and that of their reader's own schema.

    `read` is None for a producer, and for a consumer that reads dicts in the writer's schema.
    """

    written: int
    read: int | None = None

    @classmethod
    def unpacked(cls, written: int, read: int) -> SchemaIds | None:
        """Return the ids in two numbers of 32 bits; None if the schemas were not counted."""
        if written == _UNLISTED_ID:
            return None
        return cls(written, None if read == _NO_READER else read)

    def packed(self) -> tuple[int, int]:
        """Return the ids as two numbers of 32 bits."""
        return self.written, _NO_READER if self.read is None else self.read


UNLISTED: Final = SchemaIds(_UNLISTED_ID)


def ids_of(value: bytes | None, read: int | None = None) -> SchemaIds:
    """Return the schema ids of a message value that is read with the schema `read`."""
    return SchemaIds(written_id(value), read)


def written_id(value: bytes | None) -> int:
    """Return the schema id in the framing of a value, or NO_SCHEMA."""
    if value is None or len(value) < HEADER_SIZE or value[0] != MAGIC:
        return NO_SCHEMA
    found: int = _ID.unpack_from(value, 1)[0]
    return found if found != _UNLISTED_ID else NO_SCHEMA
