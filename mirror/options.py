"""The options of a mirror, and the properties of its clients.

Rules: passwords come from files or settings, never from the command line. A file cannot set the
properties that the mirror's guarantees rest on: idempotence, commits, and the start of a group.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from headworks._kafka.client_properties import client_properties
from headworks._server.metrics_page import MetricsEndpoint
from headworks.errors import UsageError

COMPRESSIONS = ("none", "gzip", "snappy", "lz4", "zstd")
_NAME = re.compile(r"[A-Za-z0-9._-]{1,100}")
_FIXED_PROPERTIES = re.compile(
    r"group\.id|.*auto\.commit.*|.*auto\.offset\.(store|reset)|.*idempotence|acks|"
    r"request\.required\.acks|transactional\.id|message\.timeout\.ms|delivery\..*|max\.in\.flight.*"
)


@dataclass(frozen=True, slots=True)
class MirrorSource:
    """A cluster to read: its address, its client properties, and its schema registry, if any."""

    bootstrap: str
    client: Mapping[str, Any]
    registry: str | None


@dataclass(frozen=True, slots=True)
class MirrorOptions:
    """One mirror: its sources, its target, the topics, and how it copies.

    `name` names the group on the sources and the tier in the audit. `registry` is the target's.
    `audit` says whether the mirror counts itself there.
    """

    name: str
    sources: tuple[MirrorSource, ...]
    target: str
    target_client: Mapping[str, Any]
    topics: re.Pattern[str]
    excluding: re.Pattern[str] | None
    registry: str
    copy_schemas: bool
    audit: bool
    folder: Path
    compression: str = "zstd"
    commit_every: float = 5.0
    refresh_every: float = 10.0
    buffer_bytes: int = 64 << 20
    skip_too_large: bool = False
    skip_damaged: bool = False
    skip_lost: bool = False
    metrics: MetricsEndpoint | None = None
    as_json: bool = False

    def __post_init__(self) -> None:
        if not _NAME.fullmatch(self.name):
            raise UsageError(
                f"a mirror cannot be called {self.name!r}",
                fix="use letters, digits, dot, underscore and hyphen, at most 100",
            )
        if self.compression not in COMPRESSIONS:
            raise UsageError(
                f"compression {self.compression!r} is not known",
                fix=f"use {', '.join(COMPRESSIONS)}",
            )
        addresses = [source.bootstrap for source in self.sources]
        if len(set(addresses)) < len(addresses):
            raise UsageError("a source is given twice", fix="name each --from once")
        if self.target in addresses:
            raise UsageError(
                f"{self.target} is both source and target",
                fix="mirror into another cluster: its own messages would come back for ever",
            )
        if self.copy_schemas and any(source.registry is None for source in self.sources):
            raise UsageError(
                "--registry-mirror copies from a registry that was not named",
                fix="give --from-registry",
            )

    @property
    def group(self) -> str:
        """The consumer group on each source."""
        return f"headworks-mirror-{self.name}"

    @property
    def refresh_ms(self) -> int:
        """The interval at which clients look for new partitions, in milliseconds."""
        return int(self.refresh_every * 1000)

    @property
    def tier(self) -> str:
        """The tier of the audit."""
        return f"mirror:{self.name}"

    def wants(self, topic: str) -> bool:
        """Return whether a topic is copied; topics of the brokers themselves are not."""
        if topic.startswith("__") or not self.topics.fullmatch(topic):
            return False
        return self.excluding is None or not self.excluding.fullmatch(topic)


def whole_names(pattern: str, option: str) -> re.Pattern[str]:
    """Return a regular expression for whole topic names. Raises UsageError."""
    try:
        return re.compile(pattern)
    except re.error as error:
        raise UsageError(
            f"{option} {pattern!r} is not a regular expression: {error}",
            fix="for example 'shop\\..*', or 'orders|refunds'",
        ) from None


def read_properties(bootstrap: str, path: Path | None) -> dict[str, Any]:
    """Return the librdkafka properties of a side, from its file (`name=value` per line) or the
    settings.

    Raises UsageError for an unreadable file, a malformed line, and a property that cannot be set.
    """
    if path is None:
        return client_properties(bootstrap)
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"cannot read the client properties {path}: {error}") from None
    found: dict[str, Any] = {}
    for number, line in enumerate(lines, 1):
        text = line.strip()
        if not text or text.startswith("#"):
            continue
        name, separator, value = (part.strip() for part in text.partition("="))
        if not separator or not name:
            raise UsageError(f"{path}:{number}: expected name=value")
        if _FIXED_PROPERTIES.fullmatch(name):
            raise UsageError(
                f"{path}:{number}: {name} is the mirror's own, and cannot be set",
                fix="leave it out: what the mirror promises rests on it",
            )
        found[name] = value
    return {**found, "bootstrap.servers": bootstrap}
