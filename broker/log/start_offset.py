"""The file `start-offset`: where a log starts after its first records were deleted.

Rule: the number decides what retention removes, so it carries a checksum, and an offset outside
the log refuses the log. The form without a checksum, of earlier versions, is read too.
"""

from __future__ import annotations

from pathlib import Path

from crc32c import crc32c

from headworks._atomic_file import replace_file
from headworks.errors import CorruptError

START_FILE = "start-offset"
_MAGIC = "start-offset-1"
_FIX = (
    "restore the folder from a copy (docs/backup.md), or delete the file: records that clients had"
    " deleted may be served again"
)


def save_start(folder: Path, offset: int) -> None:
    """Replace the file durably."""
    body = f"{offset}\n"
    replace_file(folder / START_FILE, f"{_MAGIC} {crc32c(body.encode()):08x}\n{body}")


def load_start(folder: Path, end: int) -> int:
    """Return the saved offset, 0 without a file; CorruptError if it is damaged or above `end`."""
    path = folder / START_FILE
    try:
        text = path.read_text(encoding="ascii", errors="replace")
    except FileNotFoundError:
        return 0
    head, _, body = text.partition("\n")
    if not body and text.isascii():  # the form of earlier versions
        head, body = f"{_MAGIC} {crc32c(text.encode()):08x}", text
    number = body.removesuffix("\n")
    if head != f"{_MAGIC} {crc32c(body.encode()):08x}" or not (
        number.isascii() and number.isdigit()
    ):
        raise CorruptError(f"{path} is damaged at byte 0: {text[:60]!r}", fix=_FIX)
    if int(number) > end:
        raise CorruptError(
            f"{path} names offset {number}, and the log ends at offset {end}", fix=_FIX
        )
    return int(number)
