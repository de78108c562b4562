"""The type that was probably meant by a name that nothing defines. Pure.

Rule: the work is bounded, because the name and the names beside it may be a stranger's.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from itertools import islice
from typing import Final

from headworks.schema._model import PRIMITIVES

_MAX_COMPARED_NAMES: Final = 200
_MAX_NAME_CHARACTERS: Final = 100
# Names of the same types in SQL, Java, and Python, which are not similar as text.
_ELSEWHERE: Final = {
    "bigint": "long",
    "binary": "bytes",
    "bool": "boolean",
    "bytearray": "bytes",
    "char": "string",
    "integer": "int",
    "int32": "int",
    "int64": "long",
    "none": "null",
    "float32": "float",
    "float64": "double",
    "real": "double",
    "str": "string",
    "text": "string",
    "varchar": "string",
}


def similar_type(name: str, defined: Iterable[str]) -> str | None:
    """Return a primitive or a defined type that `name` may stand for, or None."""
    if len(name) > _MAX_NAME_CHARACTERS:
        return None
    wanted = name.rpartition(".")[2].lower()
    if wanted in _ELSEWHERE:
        return _ELSEWHERE[wanted]
    names = [one for one in islice(defined, _MAX_COMPARED_NAMES) if len(one) <= 2 * len(name) + 40]
    by_simple = {one.rpartition(".")[2].lower(): one for one in reversed([*PRIMITIVES, *names])}
    close = difflib.get_close_matches(wanted, by_simple, n=1, cutoff=0.75)
    return by_simple[close[0]] if close else None
