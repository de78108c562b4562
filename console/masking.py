"""Events with their sensitive values masked: each becomes MASK.

Rules:

- A path is masked if any of the topic's schemas marks it, so a mark covers older messages, too.
- Masking comes before any other use of a value: filters see only masked values.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from headworks.schema._sensitive import ENTRY, ITEM, Paths, paths_below

MASK = "•••"


def masked(value: Any, paths: Paths) -> Any:
    """Return a copy of the value with MASK at the paths."""
    if not paths:
        return value
    if () in paths:
        return None if value is None else MASK
    if isinstance(value, Mapping):
        # A map and a record look alike here: a path of either counts.
        return {key: masked(inner, paths_below(paths, key, ENTRY)) for key, inner in value.items()}
    if isinstance(value, list | tuple):
        return [masked(item, paths_below(paths, ITEM)) for item in value]
    return value
