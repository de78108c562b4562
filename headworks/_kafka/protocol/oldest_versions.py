"""The oldest versions of three APIs, for which kio has no schema.

- CreateTopics 0: the request lacks `validate only`; the reply is [name, error].
- CreateTopics 1: the reply lacks the throttle time.
- DeleteTopics 0: the reply lacks the throttle time.
- DescribeConfigs 0: the request lacks `include synonyms`. The reply has name, value, read only, is
  default, and is sensitive; it lacks the source and the synonyms.

Rule: a request becomes one of the first version that has a schema. A reply is written by hand.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from headworks._kafka.protocol.apis import ApiKey

_DEFAULT_SOURCE = 5
_NO_THROTTLE = 4  # bytes of the throttle time at the beginning of a reply


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
}
