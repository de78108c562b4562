"""Which cluster a log is in, and which topic each of its names stands for at the moment."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class LogIdentity:
    """The id of the cluster, and the id of each topic; empty, or missing, if the broker has none.

    A topic that is deleted and made again has another id (KIP-516).
    """

    cluster: str = ""
    topics: Mapping[str, str] = field(default_factory=dict)
