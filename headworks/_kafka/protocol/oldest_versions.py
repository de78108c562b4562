"""The oldest versions of five APIs, for which kio has no schema.

- CreateTopics 0: the request lacks `validate only`; the reply is [name, error].
- CreateTopics 1: the reply lacks the throttle time.
- DeleteTopics 0: the reply lacks the throttle time.
- DescribeConfigs 0: the request lacks `include synonyms`. The reply has name, value, read only, is
  default, and is sensitive; it lacks the source and the synonyms.
- ListOffsets 0, which librdkafka sends up to 1.7: the request limits the number of offsets of a
  partition; the reply has an array of them, and no timestamp.
- OffsetCommit 1, which librdkafka sends up to 1.0: each offset has a timestamp, which is ignored.

Rule: a request becomes one of the first version that has a schema, or has a schema here. A reply is
written by hand.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar

from headworks._kafka.protocol.apis import ApiKey

_DEFAULT_SOURCE = 5
_NO_THROTTLE = 4  # bytes of the throttle time at the beginning of a reply
_INT = {"kafka_type": "int32"}
_LONG = {"kafka_type": "int64"}
_STRING = {"kafka_type": "string"}


@dataclass(frozen=True, slots=True, kw_only=True)
class OldestListOffsetsPartition:
    """A partition of ListOffsets 0, and how many offsets the client wants."""

    __flexible__: ClassVar[bool] = False
    partition_index: int = field(metadata=_INT)
    timestamp: int = field(metadata=_LONG)
    max_num_offsets: int = field(metadata=_INT)


@dataclass(frozen=True, slots=True, kw_only=True)
class OldestListOffsetsTopic:
    """A topic of ListOffsets 0."""

    __flexible__: ClassVar[bool] = False
    name: str = field(metadata=_STRING)
    partitions: tuple[OldestListOffsetsPartition, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class OldestListOffsetsRequest:
    """ListOffsets 0."""

    __flexible__: ClassVar[bool] = False
    replica_id: int = field(metadata=_INT)
    topics: tuple[OldestListOffsetsTopic, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class OldestOffsetCommitPartition:
    """A partition of OffsetCommit 1."""

    __flexible__: ClassVar[bool] = False
    partition_index: int = field(metadata=_INT)
    committed_offset: int = field(metadata=_LONG)
    commit_timestamp: int = field(metadata=_LONG)
    committed_metadata: str | None = field(metadata=_STRING)


@dataclass(frozen=True, slots=True, kw_only=True)
class OldestOffsetCommitTopic:
    """A topic of OffsetCommit 1."""

    __flexible__: ClassVar[bool] = False
    name: str = field(metadata=_STRING)
    partitions: tuple[OldestOffsetCommitPartition, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class OldestOffsetCommitRequest:
    """OffsetCommit 1."""

    __flexible__: ClassVar[bool] = False
    group_id: str = field(metadata=_STRING)
    generation_id_or_member_epoch: int = field(metadata=_INT)
    member_id: str = field(metadata=_STRING)
    topics: tuple[OldestOffsetCommitTopic, ...]


def _text(value: str | None) -> bytes:
    if value is None:
        return b"\xff\xff"
    data = value.encode()
    return struct.pack(">h", len(data)) + data


def _array(items: Iterable[bytes]) -> bytes:
    parts = list(items)
    return struct.pack(">i", len(parts)) + b"".join(parts)


def _created_0(fields: Mapping[str, Any]) -> bytes:
    return _array(
        _text(topic["name"]) + struct.pack(">h", topic["error_code"]) for topic in fields["topics"]
    )


def _created_1(fields: Mapping[str, Any]) -> bytes:
    return _array(
        _text(topic["name"])
        + struct.pack(">h", topic["error_code"])
        + _text(topic["error_message"])
        for topic in fields["topics"]
    )


def _deleted_0(fields: Mapping[str, Any]) -> bytes:
    return _array(
        _text(topic["name"]) + struct.pack(">h", topic["error_code"])
        for topic in fields["responses"]
    )


def _configs_0(fields: Mapping[str, Any]) -> bytes:
    return bytes(_NO_THROTTLE) + _array(
        struct.pack(">h", result["error_code"])
        + _text(result["error_message"])
        + struct.pack(">b", result["resource_type"])
        + _text(result["resource_name"])
        + _array(
            _text(config["name"])
            + _text(config["value"])
            + struct.pack(
                ">???",
                config["read_only"],
                config["config_source"] == _DEFAULT_SOURCE,
                config["is_sensitive"],
            )
            for config in result["configs"]
        )
        for result in fields["results"]
    )


def _offsets_0(fields: Mapping[str, Any]) -> bytes:
    return _array(
        _text(topic["name"])
        + _array(
            struct.pack(">ih", partition["partition_index"], partition["error_code"])
            + _array(struct.pack(">q", offset) for offset in partition.get("offsets", ()))
            for partition in topic["partitions"]
        )
        for topic in fields["topics"]
    )


def _committed_1(fields: Mapping[str, Any]) -> bytes:
    return _array(
        _text(topic["name"])
        + _array(
            struct.pack(">ih", partition["partition_index"], partition["error_code"])
            for partition in topic["partitions"]
        )
        for topic in fields["topics"]
    )


# (api key, version): the schema of a request that kio lacks
SCHEMAS: Mapping[tuple[int, int], type] = {
    (ApiKey.LIST_OFFSETS, 0): OldestListOffsetsRequest,
    (ApiKey.OFFSET_COMMIT, 1): OldestOffsetCommitRequest,
}
# (api key, version): the version with a schema, and the bytes that its request has in addition
REQUESTS: Mapping[tuple[int, int], tuple[int, bytes]] = {
    (ApiKey.CREATE_TOPICS, 0): (2, b"\0"),
    (ApiKey.CREATE_TOPICS, 1): (2, b""),
    (ApiKey.DELETE_TOPICS, 0): (1, b""),
    (ApiKey.DESCRIBE_CONFIGS, 0): (1, b"\0"),
}
REPLIES: Mapping[tuple[int, int], Callable[[Mapping[str, Any]], bytes]] = {
    (ApiKey.CREATE_TOPICS, 0): _created_0,
    (ApiKey.CREATE_TOPICS, 1): _created_1,
    (ApiKey.DELETE_TOPICS, 0): _deleted_0,
    (ApiKey.DESCRIBE_CONFIGS, 0): _configs_0,
    (ApiKey.LIST_OFFSETS, 0): _offsets_0,
    (ApiKey.OFFSET_COMMIT, 1): _committed_1,
}
