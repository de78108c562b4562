"""The configs of a topic: names, types, defaults, meanings.

Rules: names and units are Kafka's, so that tools know them. A name that is not in the table is
refused: a config that is stored but does nothing would be a lie. A topic stores only what was set
for it; the rest comes from the broker's defaults.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from headworks._broker.log import CompactionConfig, LogConfig
from headworks.errors import UsageError

__all__ = [
    "CONFIGS",
    "VALIDATION",
    "ConfigKey",
    "InvalidConfigError",
    "TopicConfig",
    "resolve_config",
]

# the protocol's numbers of config types
_BOOLEAN, _STRING, _INT, _LONG, _DOUBLE, _LIST = 1, 2, 3, 5, 6, 7
VALIDATION = "headworks.schema.validation"
_FOREVER = (1 << 63) - 1
_POLICIES = ("delete", "compact", "compact,delete", "delete,compact")


class InvalidConfigError(UsageError):
    """A config that does not exist, or a value that it cannot have."""


@dataclass(frozen=True, slots=True)
class ConfigKey:
    """One config: name, type (the protocol's number), default, meaning, and what it allows."""

    name: str
    kind: int
    default: str
    meaning: str
    check: Callable[[str], bool]


@dataclass(frozen=True, slots=True)
class TopicConfig:
    """The configs of a topic, resolved."""

    log: LogConfig
    flush_messages: int
    flush_ms: int
    max_message_bytes: int
    append_time: bool
    compacted: bool
    schema_validation: bool

    @property
    def validates_records(self) -> bool:
        """Whether batches are looked into before they are taken."""
        return self.compacted or self.schema_validation


def _integer(low: int, high: int = (1 << 63) - 1) -> Callable[[str], bool]:
    def check(value: str) -> bool:
        try:
            return low <= int(value) <= high
        except ValueError:
            return False

    return check


def _fraction(value: str) -> bool:
    try:
        return 0.0 <= float(value) <= 1.0
    except ValueError:
        return False


def _one_of(*allowed: str) -> Callable[[str], bool]:
    return lambda value: value in allowed


CONFIGS: Mapping[str, ConfigKey] = {
    key.name: key
    for key in (
        ConfigKey(
            "cleanup.policy",
            _LIST,
            "delete",
            "how old records go: delete (by segment), compact (a key's last stays), or both",
            _one_of(*_POLICIES),
        ),
        ConfigKey(
            "compression.type",
            _STRING,
            "producer",
            "batches keep the codec the producer chose",
            _one_of("producer"),
        ),
        ConfigKey(
            "delete.retention.ms",
            _LONG,
            "86400000",
            "keep tombstones for so long after what they delete is gone from a compacted topic",
            _integer(0),
        ),
        ConfigKey(
            "flush.messages",
            _LONG,
            "100000",
            "put a partition on disk after so many messages",
            _integer(1),
        ),
        ConfigKey(
            "flush.ms", _LONG, "200", "put a partition on disk after so many ms", _integer(0)
        ),
        ConfigKey(
            VALIDATION,
            _BOOLEAN,
            "false",
            "refuse messages whose schema id is not registered under TOPIC-value: true or false",
            _one_of("true", "false"),
        ),
        ConfigKey(
            "max.compaction.lag.ms",
            _LONG,
            str(_FOREVER),
            "compact a record at the latest so long after it was written",
            _integer(1),
        ),
        ConfigKey(
            "max.message.bytes",
            _INT,
            "1048588",
            "largest record batch that is taken",
            _integer(0, (1 << 31) - 1),
        ),
        ConfigKey(
            "message.timestamp.type",
            _STRING,
            "CreateTime",
            "whose clock stamps the records",
            _one_of("CreateTime", "LogAppendTime"),
        ),
        ConfigKey(
            "min.cleanable.dirty.ratio",
            _DOUBLE,
            "0.5",
            "compact when this part of the sealed bytes, 0 to 1, was not compacted yet",
            _fraction,
        ),
        ConfigKey(
            "min.compaction.lag.ms",
            _LONG,
            "0",
            "leave a record uncompacted for at least so long after it was written",
            _integer(0),
        ),
        ConfigKey(
            "retention.bytes",
            _LONG,
            "-1",
            "keep at most so many bytes of a partition; -1: no limit",
            _integer(-1),
        ),
        ConfigKey(
            "retention.ms",
            _LONG,
            "604800000",
            "remove segments that were last written so long ago; -1: never",
            _integer(-1),
        ),
        ConfigKey(
            "segment.bytes",
            _INT,
            "1073741824",
            "start a new segment file at this size",
            _integer(1024, (1 << 31) - 1),
        ),
        ConfigKey(
            "segment.ms",
            _LONG,
            "604800000",
            "start a new segment file so long after the last one was begun",
            _integer(1),
        ),
    )
}


def resolve_config(
    configs: Mapping[str, str], defaults: Mapping[str, str], *, show_unflushed: bool = False
) -> TopicConfig:
    """The topic's configs over the broker's defaults over the table's; InvalidConfigError."""
    for source in (defaults, configs):
        for name, value in source.items():
            key = CONFIGS.get(name)
            if key is None:
                raise InvalidConfigError(
                    f"config {name!r} is not known; known: {', '.join(CONFIGS)}"
                )
            if not key.check(value):
                raise InvalidConfigError(f"config {name} cannot be {value!r} ({key.meaning})")
    merged = {name: key.default for name, key in CONFIGS.items()} | {**defaults} | {**configs}
    policies = merged["cleanup.policy"].split(",")
    deletes = "delete" in policies
    compaction = _compaction(merged) if "compact" in policies else None
    return TopicConfig(
        LogConfig(
            segment_bytes=int(merged["segment.bytes"]),
            segment_ms=int(merged["segment.ms"]),
            retention_ms=int(merged["retention.ms"]) if deletes else -1,
            retention_bytes=int(merged["retention.bytes"]) if deletes else -1,
            show_unflushed=show_unflushed,
            compaction=compaction,
        ),
        flush_messages=int(merged["flush.messages"]),
        flush_ms=int(merged["flush.ms"]),
        max_message_bytes=int(merged["max.message.bytes"]),
        append_time=merged["message.timestamp.type"] == "LogAppendTime",
        compacted=compaction is not None,
        schema_validation=merged[VALIDATION] == "true",
    )


def _compaction(merged: Mapping[str, str]) -> CompactionConfig:
    lag = int(merged["max.compaction.lag.ms"])
    return CompactionConfig(
        min_dirty_ratio=float(merged["min.cleanable.dirty.ratio"]),
        min_lag_ms=int(merged["min.compaction.lag.ms"]),
        max_lag_ms=-1 if lag == _FOREVER else lag,
        delete_retention_ms=int(merged["delete.retention.ms"]),
    )
