"""The operations that a client may use on a topic, a group, or the cluster, as Kafka's bit field.

Rule: an operation is allowed if the API that stands for it is. A client asks for this in Metadata,
DescribeGroups, and DescribeCluster; otherwise the field is left at its default.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from headworks._broker.handlers.client import Client
from headworks._kafka.protocol.apis import ApiKey

# The number of each operation in the protocol, and the API that stands for it
_READ, _WRITE, _CREATE, _DELETE, _ALTER, _DESCRIBE = 3, 4, 5, 6, 7, 8
_DESCRIBE_CONFIGS, _ALTER_CONFIGS, _IDEMPOTENT_WRITE = 10, 11, 12
_TOPIC: Mapping[int, ApiKey] = {
    _READ: ApiKey.FETCH,
    _WRITE: ApiKey.PRODUCE,
    _CREATE: ApiKey.CREATE_TOPICS,
    _DELETE: ApiKey.DELETE_TOPICS,
    _ALTER: ApiKey.CREATE_PARTITIONS,
    _DESCRIBE: ApiKey.METADATA,
    _DESCRIBE_CONFIGS: ApiKey.DESCRIBE_CONFIGS,
    _ALTER_CONFIGS: ApiKey.ALTER_CONFIGS,
}
_GROUP: Mapping[int, ApiKey] = {
    _READ: ApiKey.JOIN_GROUP,
    _DELETE: ApiKey.DELETE_GROUPS,
    _DESCRIBE: ApiKey.DESCRIBE_GROUPS,
}
_CLUSTER: Mapping[int, ApiKey] = {
    _DESCRIBE_CONFIGS: ApiKey.DESCRIBE_CONFIGS,
    _IDEMPOTENT_WRITE: ApiKey.INIT_PRODUCER_ID,
}


def topic_operations(client: Client, name: str) -> int:
    """Return what a client may do with a topic."""
    return _bits(_TOPIC, lambda api: client.sees_topic(api, name))


def group_operations(client: Client, name: str) -> int:
    """Return what a client may do with a group."""
    return _bits(_GROUP, lambda api: client.sees_group(api, name))


def cluster_operations(client: Client) -> int:
    """Return what a client may do with the cluster. Every client may describe it."""
    return _bits(_CLUSTER, client.sees_broker) | 1 << _DESCRIBE


def _bits(operations: Mapping[int, ApiKey], allowed: Callable[[ApiKey], bool]) -> int:
    return sum(1 << operation for operation, api in operations.items() if allowed(api))
