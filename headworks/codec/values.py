"""Encodes Python values as bytes of their Avro type, if that takes more than one lookup.

Rules:

- Each function accepts exactly the values that a type checker allows for the field. It raises
  TypeError, ValueError, or OverflowError for others, and `_explain` then names the field.
- Instants are aware datetimes, and local timestamps are naive ones. The other kind is refused,
  because a guessed time zone is wrong twice a year.
- Microseconds that a milliseconds type cannot hold are cut off, toward the past.
"""

from __future__ import annotations

import struct
from datetime import UTC, date, datetime, time
from decimal import Decimal
from uuid import UUID

from headworks.codec.varints import count, int32, int64

__all__ = [
    "FALSE",
    "KEYS",
    "TRUE",
    "array_of",
    "bytes_of",
    "date_days",
    "decimal_bytes",
    "decimal_fixed",
    "double64",
    "fixed_of",
    "float32",
    "instant_micros",
    "instant_millis",
    "key_text",
    "local_micros",
    "local_millis",
    "map_of",
    "millis",
    "pack_double",
    "pack_float",
    "refuse",
    "text_of",
    "time_micros",
    "time_millis",
    "utf8",
    "uuid_fixed",
    "uuid_text",
]

TRUE, FALSE = b"\x01", b"\x00"
utf8 = str.encode
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_LOCAL_EPOCH = datetime(1970, 1, 1)  # noqa: DTZ001 - a local timestamp has no zone
_EPOCH_DAY = date(1970, 1, 1).toordinal()
_MAX_KEYS, _MAX_KEY_BYTES = 1024, 64
pack_float, pack_double = struct.Struct("<f").pack, struct.Struct("<d").pack


def refuse(value: object) -> bytes:
    """Raise TypeError, because no type that is allowed here fits the value."""
    raise TypeError(value)


def key_text(*parts: object) -> bytes | None:
    """Return the parts as text, joined by "|"; None for a single part that is None."""
    if len(parts) == 1:
        return None if parts[0] is None else str(parts[0]).encode()
    return "|".join(["" if part is None else str(part) for part in parts]).encode()


def float32(value: float) -> bytes:
    """Encode an Avro float; a finite number beyond its range is refused."""
    if value.__class__ is not float:
        _check_number(value)
    return pack_float(value)


def double64(value: float) -> bytes:
    """Encode an Avro double."""
    if value.__class__ is not float:
        _check_number(value)
    return pack_double(value)


def _check_number(value: object) -> None:
    """Accept an int, and subclasses, where a float is declared; bool is one, and is refused."""
    if not isinstance(value, (float, int)) or isinstance(value, bool):
        raise TypeError(value)


def text_of(value: str) -> bytes:
    """Encode an Avro string: its length in UTF-8, then UTF-8."""
    data = str.encode(value)
    return count(len(data)) + data


class _Keys(dict[str, bytes]):
    """A bounded cache of encoded strings by string; long strings are not kept."""

    def __missing__(self, key: str) -> bytes:
        data = text_of(key)
        if len(data) <= _MAX_KEY_BYTES:
            if len(self) >= _MAX_KEYS:
                self.clear()
            self[key] = data
        return data


# Maps have the same few keys in every event.
KEYS = _Keys()


def bytes_of(value: bytes) -> bytes:
    """Encode Avro bytes: length, then the bytes."""
    if not isinstance(value, (bytes, bytearray)):
        raise TypeError(value)
    return count(len(value)) + value


def fixed_of(value: bytes, size: int) -> bytes:
    """Encode a fixed: exactly `size` bytes."""
    if not isinstance(value, (bytes, bytearray)):
        raise TypeError(value)
    if len(value) != size:
        raise ValueError(value)
    return bytes(value)


def array_of(value: object) -> None:
    """Accept a tuple, or a subclass of list, where a list is declared; refuse the rest."""
    if not isinstance(value, (list, tuple)):
        raise TypeError(value)


def map_of(value: object) -> None:
    """Accept a subclass of dict where a dict is declared; refuse the rest."""
    if not isinstance(value, dict):
        raise TypeError(value)


_latest: tuple[datetime, int] = _EPOCH, 0


def _micros(value: datetime) -> int:
    """Return the microseconds from 1970 UTC to an aware datetime.

    The last result is kept, because an event's time is needed twice: in its bytes and as the
    record's timestamp.
    """
    global _latest
    latest, micros = _latest
    if value is not latest:
        since = value - _EPOCH
        micros = (since.days * 86_400 + since.seconds) * 1_000_000 + since.microseconds
        _latest = value, micros
    return micros


def millis(value: datetime) -> int:
    """Return the milliseconds from 1970 UTC to an aware datetime."""
    return _micros(value) // 1_000


def instant_millis(value: datetime) -> bytes:
    """Encode a timestamp-millis."""
    return int64(_micros(value) // 1_000)


def instant_micros(value: datetime) -> bytes:
    """Encode a timestamp-micros."""
    return int64(_micros(value))


def local_millis(value: datetime) -> bytes:
    """Encode a local-timestamp-millis; the datetime must be naive."""
    since = value - _LOCAL_EPOCH
    return int64((since.days * 86_400 + since.seconds) * 1_000 + since.microseconds // 1_000)


def local_micros(value: datetime) -> bytes:
    """Encode a local-timestamp-micros; the datetime must be naive."""
    since = value - _LOCAL_EPOCH
    return int64((since.days * 86_400 + since.seconds) * 1_000_000 + since.microseconds)


def date_days(value: date) -> bytes:
    """Encode a date; a datetime is refused, because its time would be lost."""
    if not isinstance(value, date) or isinstance(value, datetime):
        raise TypeError(value)
    return int32(value.toordinal() - _EPOCH_DAY)


def time_millis(value: time) -> bytes:
    """Encode a time-millis; the time must be naive."""
    return int32(_micros_of_day(value) // 1_000)


def time_micros(value: time) -> bytes:
    """Encode a time-micros; the time must be naive."""
    return int64(_micros_of_day(value))


def _micros_of_day(value: time) -> int:
    if not isinstance(value, time) or value.tzinfo is not None:
        raise TypeError(value)
    seconds = value.hour * 3_600 + value.minute * 60 + value.second
    return seconds * 1_000_000 + value.microsecond


def uuid_text(value: UUID) -> bytes:
    """Encode a uuid kept as a string."""
    if not isinstance(value, UUID):
        raise TypeError(value)
    pairs = value.int.to_bytes(16, "big").hex("-", 2)  # four digits, and a hyphen after each four
    return f"H{pairs[:4]}{pairs[5:29]}{pairs[30:34]}{pairs[35:]}".encode()


def uuid_fixed(value: UUID) -> bytes:
    """Encode a uuid kept as 16 bytes."""
    if not isinstance(value, UUID):
        raise TypeError(value)
    return value.bytes


def decimal_bytes(value: Decimal, precision: int, scale: int) -> bytes:
    """Encode a decimal kept as bytes: the unscaled number, big-endian."""
    unscaled = _unscaled(value, precision, scale)
    data = unscaled.to_bytes((unscaled.bit_length() + 8) // 8, "big", signed=True)
    return count(len(data)) + data


def decimal_fixed(value: Decimal, precision: int, scale: int, size: int) -> bytes:
    """Encode a decimal kept as a fixed of `size` bytes."""
    return _unscaled(value, precision, scale).to_bytes(size, "big", signed=True)


def _unscaled(value: Decimal, precision: int, scale: int) -> int:
    if not isinstance(value, Decimal):
        raise TypeError(value)
    sign, digits, exponent = value.as_tuple()
    # More decimals than the schema has would have to be rounded, which is not ours to decide.
    if not isinstance(exponent, int) or exponent + scale < 0:
        raise ValueError(value)
    shift = exponent + scale
    if any(digits) and len(digits) + shift > precision + _leading_zeros(digits):
        raise ValueError(value)
    number = int("".join(map(str, digits))) * 10**shift if any(digits) else 0
    return -number if sign else number


def _leading_zeros(digits: tuple[int, ...]) -> int:
    return next(i for i, digit in enumerate(digits) if digit)
