"""Who reads a topic: those that governance.toml declares, and the groups that committed in it."""

from __future__ import annotations

from collections.abc import Iterable

from headworks._ci.governance import FILE_NAME, Governance
from headworks._ci.verdict import Consumer
from headworks.schema import subject_of

__all__ = ["readers_of"]


def readers_of(topic: str, governance: Governance, groups: Iterable[str]) -> list[Consumer]:
    """The readers of a topic, declared ones first, each with how it is known."""
    declared = governance.of(subject_of(topic)).consumers
    found = [Consumer(name, FILE_NAME) for name in declared]
    return found + [Consumer(name, "committed offsets") for name in sorted(groups)]
