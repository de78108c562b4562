"""Data that are damaged as bytes are: cut, replaced, or with numbers that mean too much."""

from __future__ import annotations

import random

_NUMBERS = [b"\xff" * 9 + b"\1", b"\xfe\xff\xff\xff\x0f", b"\1", b"\x80" * 12, b"\0"]


def damaged(chance: random.Random, datum: bytes) -> bytes:
    """Return the datum with one kind of damage, or as it is."""
    changed = bytearray(datum)
    how = chance.randrange(8)
    if how == 0:
        return bytes(changed[: chance.randrange(len(changed) + 1)])
    if how == 1:
        return chance.randbytes(chance.randrange(30))
    if how == 2:
        at = chance.randrange(len(changed) + 1)
        changed[at:at] = chance.choice(_NUMBERS)
    elif how < 5:
        for _ in range(chance.randint(1, 3) if changed else 0):
            changed[chance.randrange(len(changed))] = chance.choice(
                [0, 1, 2, 127, 128, 255, chance.randrange(256)]
            )
    return bytes(changed)
