"""What a server counts while it works; plain numbers, read by `metrics`."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

__all__ = ["Counters"]


@dataclass(slots=True)
class Counters:
    """Counted since the start; only grow."""

    requests: Counter[int] = field(default_factory=Counter)  # by API key
    received_bytes: int = 0
    accepted: int = 0
    refused: int = 0  # connections over the limit
    failed: int = 0  # connections closed for a reason
