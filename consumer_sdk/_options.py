"""The options of a consumer, for type checkers: `Consumer` gives their defaults and meaning."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal, TypedDict

from consumer_sdk._membership import OnPartitions, Start
from consumer_sdk._poison import OnPoison


class ConsumerOptions(TypedDict, total=False):
    """Every option that does not change the type of the events."""

    excluding: str | None
    bootstrap: str | None
    zookeeper: str | None
    membership: Literal["broker", "zookeeper"]
    registry: str | None
    start: Start
    on_poison: OnPoison
    dead_letter_topic: str | None
    redriven: bool
    skip_damaged: bool
    max_poll_records: int
    commit_every: float | None
    unreachable_after: float | None
    on_assigned: OnPartitions | None
    on_revoked: OnPartitions | None
    audit: bool
    application: str | None
    audit_every: float
    state_dir: Path | str | None
    config: dict[str, Any] | None
