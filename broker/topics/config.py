"""The configs of a topic: names, types, defaults, meanings.

Rules: names and units are Kafka's, so that tools know them. A name that is not in the table is
refused: a config that is stored but does nothing would be a lie. A topic stores only what was set
for it; the rest comes from the broker's defaults.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from broker.log import LogConfig
from headworks.errors import UsageError

__all__ = ["CONFIGS", "ConfigKey", "InvalidConfigError", "TopicConfig", "resolve_config"]

_INT, _STRING, _LONG = 3, 2, 5  # the protocol's numbers of config types
_LIST = 7


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


def _integer(low: int, high: int = (1 << 63) - 1) -> Callable[[str], bool]:
    def check(value: str) -> bool:
        try:
            return low <= int(value) <= high
        except ValueError:
            return False

    return check


def _one_of(*allowed: str) -> Callable[[str], bool]:
    return lambda value: value in allowed


CONFIGS: Mapping[str, ConfigKey] = {
    key.name: key
    for key in (
        ConfigKey(
            "cleanup.policy", _LIST, "delete", "how old records go: by segment", _one_of("delete")
        ),
        ConfigKey(
            "compression.type",
            _STRING,
            "producer",
            "batches keep the codec the producer chose",
            _one_of("producer"),
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
                raise InvalidConfigError(f"config {name} cannot be {value!r}: it is {key.meaning}")
    merged = {name: key.default for name, key in CONFIGS.items()} | {**defaults} | {**configs}
    return TopicConfig(
        LogConfig(
            segment_bytes=int(merged["segment.bytes"]),
            retention_ms=int(merged["retention.ms"]),
            retention_bytes=int(merged["retention.bytes"]),
            show_unflushed=show_unflushed,
        ),
        flush_messages=int(merged["flush.messages"]),
        flush_ms=int(merged["flush.ms"]),
        max_message_bytes=int(merged["max.message.bytes"]),
        append_time=merged["message.timestamp.type"] == "LogAppendTime",
    )
