"""The configs of a topic: names, types, defaults, meanings.

Rules:

- Names and units are Kafka's, so that tools know them.
- A name that is not in the table is rejected: a stored config that does nothing would mislead.
- Configs of Kafka that this broker has no choice about are in the table too, because deployment
  scripts set them. They take only the value that is true here, and the refusal says why.
- A topic stores only the configs that were set for it. The others are the defaults of the broker.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum

from headworks._broker.log import CompactionConfig, LogConfig
from headworks._kafka.records import Codec
from headworks.errors import UsageError

# the numbers of config types in the protocol
_BOOLEAN, _STRING, _INT, _LONG, _DOUBLE, _LIST = 1, 2, 3, 5, 6, 7
VALIDATION = "headworks.schema.validation"
_VALIDATION_MODE = "headworks.schema.validation.mode"
_FOREVER_MS = (1 << 63) - 1
_NOT_TIERED = "there is no tiered storage"
_ANY_TIME = "record timestamps are event times, which may lie at any distance"
_POLICIES = ("delete", "compact", "compact,delete", "delete,compact")
_CODECS = {"producer": None, "uncompressed": Codec.NONE} | {
    codec.name.lower(): codec for codec in Codec if codec is not Codec.NONE
}


class InvalidConfigError(UsageError):
    """A config is unknown, or its value is invalid."""


@dataclass(frozen=True, slots=True)
class ConfigKey:
    """One config."""

    name: str
    kind: int  # the number of its type in the protocol
    default: str
    meaning: str  # one line, for the docs and DescribeConfigs
    check: Callable[[str], bool]  # returns whether a value is valid

    @property
    def is_list(self) -> bool:
        """Whether a client may append values to it, and subtract them."""
        return self.kind == _LIST


class SchemaValidation(Enum):
    """How far the broker looks into the messages of a topic (`headworks.schema.validation`)."""

    OFF = "false"
    IDS = "true"
    """The schema id of each value must be registered."""
    PAYLOAD = "payload"
    """The bytes must also be exactly one datum of that schema; keys too, if they have a subject."""


class RefusedRecords(Enum):
    """A batch with invalid records: rejected, or parted (`headworks.schema.validation.mode`)."""

    REJECT = "reject"
    """The batch is rejected as a whole."""
    DEAD_LETTER = "dead-letter"
    """The invalid records go to TOPIC.dead-letter, and the others are stored."""


@dataclass(frozen=True, slots=True)
class TopicConfig:
    """The resolved configs of a topic."""

    log: LogConfig  # for the logs of its partitions
    flush_messages: int  # flush after this many
    flush_ms: int  # flush after this time
    max_message_bytes: int  # of a record batch
    append_time: bool  # whether the broker sets the record timestamps
    compacted: bool
    schema_validation: SchemaValidation
    refused_records: RefusedRecords
    codec: Codec | None  # that the records are stored with; None: with the producer's

    @property
    def validates_records(self) -> bool:
        """Whether the records of a batch are validated before it is appended."""
        return self.compacted or self.schema_validation is not SchemaValidation.OFF

    @property
    def opens_batches(self) -> bool:
        """Whether the broker looks into a batch before it is appended."""
        return self.validates_records or self.codec is not None


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


def _fixed(name: str, kind: int, value: str, why: str) -> ConfigKey:
    """Return a config that can only be `value`."""
    return ConfigKey(name, kind, value, f"only {value or 'empty'}: {why}", _one_of(value))


CONFIGS: Mapping[str, ConfigKey] = {
    key.name: key
    for key in (
        ConfigKey(
            "cleanup.policy",
            _LIST,
            "delete",
            "delete old segments, compact (retain the last record of each key), or both",
            _one_of(*_POLICIES),
        ),
        ConfigKey(
            "compression.type",
            _STRING,
            "producer",
            "store records with this codec: producer (as the producer sent them), uncompressed,"
            " gzip, snappy, lz4, or zstd",
            _one_of(*_CODECS),
        ),
        ConfigKey(
            "delete.retention.ms",
            _LONG,
            "86400000",
            "retain a tombstone for this long after compaction removed the records before it",
            _integer(0),
        ),
        ConfigKey(
            "file.delete.delay.ms",
            _LONG,
            "0",
            "the longest that a removed segment keeps its file; it never keeps it, whatever is set",
            _integer(0),
        ),
        ConfigKey(
            "flush.messages",
            _LONG,
            "100000",
            "flush a partition after this many messages",
            _integer(1),
        ),
        ConfigKey(
            "flush.ms", _LONG, "200", "flush a partition after this many milliseconds", _integer(0)
        ),
        _fixed(
            "follower.replication.throttled.replicas", _LIST, "", "a partition has no followers"
        ),
        ConfigKey(
            VALIDATION,
            _STRING,
            SchemaValidation.OFF.value,
            "reject messages whose schema id is not registered under TOPIC-value (true), or whose"
            " bytes are no datum of that schema either (payload); false: look at none",
            _one_of(*(one.value for one in SchemaValidation)),
        ),
        ConfigKey(
            _VALIDATION_MODE,
            _STRING,
            RefusedRecords.REJECT.value,
            "for a batch with refused records: reject the whole batch, or write these"
            " records to TOPIC.dead-letter and store the others (dead-letter)",
            _one_of(*(one.value for one in RefusedRecords)),
        ),
        _fixed("index.interval.bytes", _INT, "4096", "the interval of the index cannot change"),
        _fixed("leader.replication.throttled.replicas", _LIST, "", "a partition has no followers"),
        _fixed("local.retention.bytes", _LONG, "-2", _NOT_TIERED),
        _fixed("local.retention.ms", _LONG, "-2", _NOT_TIERED),
        ConfigKey(
            "max.compaction.lag.ms",
            _LONG,
            str(_FOREVER_MS),
            "compact a record at most this long after it was written",
            _integer(1),
        ),
        ConfigKey(
            "max.message.bytes",
            _INT,
            "1048588",
            "maximum size of a record batch",
            _integer(0, (1 << 31) - 1),
        ),
        _fixed("message.timestamp.after.max.ms", _LONG, str(_FOREVER_MS), _ANY_TIME),
        _fixed("message.timestamp.before.max.ms", _LONG, str(_FOREVER_MS), _ANY_TIME),
        ConfigKey(
            "message.timestamp.type",
            _STRING,
            "CreateTime",
            "whether the producer or the broker sets the record timestamps",
            _one_of("CreateTime", "LogAppendTime"),
        ),
        ConfigKey(
            "min.cleanable.dirty.ratio",
            _DOUBLE,
            "0.5",
            "compact when this fraction (0 to 1) of the sealed bytes is not compacted yet",
            _fraction,
        ),
        ConfigKey(
            "min.compaction.lag.ms",
            _LONG,
            "0",
            "leave a record uncompacted for at least this long after it was written",
            _integer(0),
        ),
        _fixed("min.insync.replicas", _INT, "1", "a partition has one replica"),
        _fixed("preallocate", _BOOLEAN, "false", "a segment grows as it is written"),
        _fixed("remote.storage.enable", _BOOLEAN, "false", _NOT_TIERED),
        ConfigKey(
            "retention.bytes",
            _LONG,
            "-1",
            "retain at most this many bytes per partition (-1: unlimited)",
            _integer(-1),
        ),
        ConfigKey(
            "retention.ms",
            _LONG,
            "604800000",
            "delete a segment this long after its last write (-1: never)",
            _integer(-1),
        ),
        ConfigKey(
            "segment.bytes",
            _INT,
            "1073741824",
            "start a new segment file at this size",
            _integer(1024, (1 << 31) - 1),
        ),
        _fixed(
            "segment.index.bytes", _INT, "10485760", "the index of the largest segment is smaller"
        ),
        _fixed("segment.jitter.ms", _LONG, "0", "segments are started without a random delay"),
        ConfigKey(
            "segment.ms",
            _LONG,
            "604800000",
            "start a new segment file when the active one is this old",
            _integer(1),
        ),
        _fixed(
            "unclean.leader.election.enable", _BOOLEAN, "false", "no other broker can become leader"
        ),
    )
}


# Kafka's names of the broker's defaults of topic configs
BROKER_NAMES: Mapping[str, str] = {
    "cleanup.policy": "log.cleanup.policy",
    "compression.type": "compression.type",
    "delete.retention.ms": "log.cleaner.delete.retention.ms",
    "file.delete.delay.ms": "log.segment.delete.delay.ms",
    "flush.messages": "log.flush.interval.messages",
    "flush.ms": "log.flush.interval.ms",
    "index.interval.bytes": "log.index.interval.bytes",
    "local.retention.bytes": "log.local.retention.bytes",
    "local.retention.ms": "log.local.retention.ms",
    "max.compaction.lag.ms": "log.cleaner.max.compaction.lag.ms",
    "max.message.bytes": "message.max.bytes",
    "message.timestamp.after.max.ms": "log.message.timestamp.after.max.ms",
    "message.timestamp.before.max.ms": "log.message.timestamp.before.max.ms",
    "message.timestamp.type": "log.message.timestamp.type",
    "min.cleanable.dirty.ratio": "log.cleaner.min.cleanable.ratio",
    "min.compaction.lag.ms": "log.cleaner.min.compaction.lag.ms",
    "min.insync.replicas": "min.insync.replicas",
    "preallocate": "log.preallocate",
    "retention.bytes": "log.retention.bytes",
    "retention.ms": "log.retention.ms",
    "segment.bytes": "log.segment.bytes",
    "segment.index.bytes": "log.index.size.max.bytes",
    "segment.jitter.ms": "log.roll.jitter.ms",
    "segment.ms": "log.roll.ms",
    "unclean.leader.election.enable": "unclean.leader.election.enable",
}


def resolve_config(
    configs: Mapping[str, str], defaults: Mapping[str, str], *, show_unflushed: bool = False
) -> TopicConfig:
    """Resolve configs: the topic's, then the broker's defaults, then the table's.

    Raises InvalidConfigError.
    """
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
        schema_validation=SchemaValidation(merged[VALIDATION]),
        refused_records=RefusedRecords(merged[_VALIDATION_MODE]),
        codec=_CODECS[merged["compression.type"]],
    )


def _compaction(merged: Mapping[str, str]) -> CompactionConfig:
    lag = int(merged["max.compaction.lag.ms"])
    return CompactionConfig(
        min_dirty_ratio=float(merged["min.cleanable.dirty.ratio"]),
        min_lag_ms=int(merged["min.compaction.lag.ms"]),
        max_lag_ms=-1 if lag == _FOREVER_MS else lag,
        delete_retention_ms=int(merged["delete.retention.ms"]),
    )
