"""The APIs and versions that the broker serves: the table that ApiVersions answers from.

Rules:

- A client uses the highest version offered. A version is in the table only if everything that it
  promises works.
- `minimum` is advertised, `served_from` is really answered. Produce is advertised from 0, because
  librdkafka before 2.11.1 otherwise stops compressing; versions 0-2 get UNSUPPORTED_VERSION.
  SaslHandshake is advertised from 0, because clients look for that version to detect SASL.
- Only a broker with users advertises the APIs in `SASL_APIS`. Until the login succeeds, it answers
  only those in `BEFORE_LOGIN`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum


class ApiKey(IntEnum):
    """Keys of the served APIs; the names are the protocol's."""

    PRODUCE = 0
    FETCH = 1
    LIST_OFFSETS = 2
    METADATA = 3
    OFFSET_COMMIT = 8
    OFFSET_FETCH = 9
    FIND_COORDINATOR = 10
    JOIN_GROUP = 11
    HEARTBEAT = 12
    LEAVE_GROUP = 13
    SYNC_GROUP = 14
    DESCRIBE_GROUPS = 15
    LIST_GROUPS = 16
    SASL_HANDSHAKE = 17
    API_VERSIONS = 18
    CREATE_TOPICS = 19
    DELETE_TOPICS = 20
    DELETE_RECORDS = 21
    INIT_PRODUCER_ID = 22
    OFFSET_FOR_LEADER_EPOCH = 23
    ADD_PARTITIONS_TO_TXN = 24
    ADD_OFFSETS_TO_TXN = 25
    END_TXN = 26
    WRITE_TXN_MARKERS = 27
    TXN_OFFSET_COMMIT = 28
    DESCRIBE_CONFIGS = 32
    ALTER_CONFIGS = 33
    DESCRIBE_LOG_DIRS = 35
    SASL_AUTHENTICATE = 36
    CREATE_PARTITIONS = 37
    DELETE_GROUPS = 42
    INCREMENTAL_ALTER_CONFIGS = 44
    ALTER_PARTITION_REASSIGNMENTS = 45
    LIST_PARTITION_REASSIGNMENTS = 46
    OFFSET_DELETE = 47
    DESCRIBE_CLUSTER = 60
    DESCRIBE_PRODUCERS = 61
    DESCRIBE_TRANSACTIONS = 65
    LIST_TRANSACTIONS = 66
    CONSUMER_GROUP_HEARTBEAT = 68
    CONSUMER_GROUP_DESCRIBE = 69
    LIST_CONFIG_RESOURCES = 74
    DESCRIBE_TOPIC_PARTITIONS = 75


SASL_APIS = frozenset({ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE})
# Only a broker that is alone has transactions, and advertises these
TRANSACTION_APIS = frozenset(
    {
        ApiKey.ADD_PARTITIONS_TO_TXN,
        ApiKey.ADD_OFFSETS_TO_TXN,
        ApiKey.END_TXN,
        ApiKey.WRITE_TXN_MARKERS,
        ApiKey.TXN_OFFSET_COMMIT,
        ApiKey.DESCRIBE_TRANSACTIONS,
        ApiKey.LIST_TRANSACTIONS,
    }
)
BEFORE_LOGIN = SASL_APIS | {ApiKey.API_VERSIONS}


@dataclass(frozen=True, slots=True)
class Api:
    """The versions of one API; `flexible` is the first version with tagged fields."""

    key: ApiKey
    minimum: int
    maximum: int
    flexible: int
    served_from: int = 0

    @property
    def name(self) -> str:
        """The name in lower case: `list_offsets`."""
        return self.key.name.lower()

    def is_flexible(self, version: int) -> bool:
        """Return whether messages of that version carry tagged fields."""
        return version >= self.flexible

    def serves(self, version: int) -> bool:
        """Return whether requests of that version get a real answer."""
        return max(self.minimum, self.served_from) <= version <= self.maximum


APIS: Mapping[int, Api] = {
    api.key: api
    for api in (
        Api(ApiKey.PRODUCE, 0, 13, 9, served_from=3),
        Api(ApiKey.FETCH, 4, 18, 12),
        Api(ApiKey.LIST_OFFSETS, 0, 11, 6),
        Api(ApiKey.METADATA, 0, 13, 9),
        Api(ApiKey.OFFSET_COMMIT, 1, 10, 8),
        Api(ApiKey.OFFSET_FETCH, 1, 10, 6),
        Api(ApiKey.FIND_COORDINATOR, 0, 4, 3),
        Api(ApiKey.JOIN_GROUP, 0, 9, 6),
        Api(ApiKey.HEARTBEAT, 0, 4, 4),
        Api(ApiKey.LEAVE_GROUP, 0, 5, 4),
        Api(ApiKey.SYNC_GROUP, 0, 5, 4),
        Api(ApiKey.DESCRIBE_GROUPS, 0, 6, 5),
        Api(ApiKey.LIST_GROUPS, 0, 5, 3),
        Api(ApiKey.SASL_HANDSHAKE, 0, 1, 2, served_from=1),
        Api(ApiKey.API_VERSIONS, 0, 3, 3),
        Api(ApiKey.CREATE_TOPICS, 0, 7, 5),
        Api(ApiKey.DELETE_TOPICS, 0, 6, 4),
        Api(ApiKey.DELETE_RECORDS, 0, 2, 2),
        Api(ApiKey.INIT_PRODUCER_ID, 0, 4, 2),
        Api(ApiKey.OFFSET_FOR_LEADER_EPOCH, 2, 4, 4),
        Api(ApiKey.ADD_PARTITIONS_TO_TXN, 0, 3, 3),
        Api(ApiKey.ADD_OFFSETS_TO_TXN, 0, 3, 3),
        Api(ApiKey.END_TXN, 0, 4, 3),
        Api(ApiKey.WRITE_TXN_MARKERS, 1, 1, 1),
        Api(ApiKey.TXN_OFFSET_COMMIT, 0, 4, 3),
        Api(ApiKey.DESCRIBE_CONFIGS, 0, 4, 4),
        Api(ApiKey.ALTER_CONFIGS, 0, 2, 2),
        Api(ApiKey.DESCRIBE_LOG_DIRS, 1, 4, 2),
        Api(ApiKey.SASL_AUTHENTICATE, 0, 2, 2),
        Api(ApiKey.CREATE_PARTITIONS, 0, 3, 2),
        Api(ApiKey.DELETE_GROUPS, 0, 2, 2),
        Api(ApiKey.INCREMENTAL_ALTER_CONFIGS, 0, 1, 1),
        Api(ApiKey.ALTER_PARTITION_REASSIGNMENTS, 0, 1, 0),
        Api(ApiKey.LIST_PARTITION_REASSIGNMENTS, 0, 0, 0),
        Api(ApiKey.OFFSET_DELETE, 0, 0, 1),
        Api(ApiKey.DESCRIBE_CLUSTER, 0, 1, 0),
        Api(ApiKey.DESCRIBE_PRODUCERS, 0, 0, 0),
        Api(ApiKey.DESCRIBE_TRANSACTIONS, 0, 0, 0),
        Api(ApiKey.LIST_TRANSACTIONS, 0, 1, 0),
        Api(ApiKey.CONSUMER_GROUP_HEARTBEAT, 0, 1, 0),
        Api(ApiKey.CONSUMER_GROUP_DESCRIBE, 0, 1, 0),
        Api(ApiKey.LIST_CONFIG_RESOURCES, 0, 1, 0),
        Api(ApiKey.DESCRIBE_TOPIC_PARTITIONS, 0, 0, 0),
    )
}
