"""A topic's readers: consumers that governance.toml declares, and groups with offsets in it."""

from __future__ import annotations

from collections.abc import Iterable

from headworks._ci.governance import FILE_NAME, GovernanceFile
from headworks._ci.verdict import DownstreamConsumer
from headworks.schema import subject_of


def readers_of(
    topic: str, governance: GovernanceFile, groups: Iterable[str]
) -> list[DownstreamConsumer]:
    """Return the readers of a topic, declared ones first, each with its source."""
    declared = governance.of(subject_of(topic)).consumers
    found = [DownstreamConsumer(name, FILE_NAME) for name in declared]
    return found + [DownstreamConsumer(name, "committed offsets") for name in sorted(groups)]
