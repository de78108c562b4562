"""Which APIs and versions are served: the table that ApiVersions answers from.

Rules: a client takes the highest version offered, so a version is in the table only if everything
it asks for works. `minimum` is what is advertised, `served_from` what is really answered: Produce
is advertised from 0, because librdkafka before 2.11.1 stops compressing otherwise, and 0-2 are
answered with UNSUPPORTED_VERSION. SaslHandshake likewise: clients look for version 0 to see whether
there is SASL at all. `LOGIN` is advertised only by a broker that has users.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

__all__ = [
    "APIS",
    "API_VERSIONS",
    "FETCH",
    "LOGIN",
    "PRODUCE",
    "SASL_AUTHENTICATE",
    "SASL_HANDSHAKE",
    "Api",
    "find_api",
]

PRODUCE = 0
FETCH = 1
SASL_HANDSHAKE = 17
API_VERSIONS = 18
SASL_AUTHENTICATE = 36
LOGIN = frozenset({SASL_HANDSHAKE, SASL_AUTHENTICATE})


@dataclass(frozen=True, slots=True)
class Api:
    """One API: key, name, versions; `flexible` is the first version with tagged fields."""

    key: int
    name: str
    minimum: int
    maximum: int
    flexible: int
    served_from: int = 0

    def is_flexible(self, version: int) -> bool:
        """Whether messages of that version carry tagged fields."""
        return version >= self.flexible

    def serves(self, version: int) -> bool:
        """Whether requests of that version are answered properly."""
        return max(self.minimum, self.served_from) <= version <= self.maximum


APIS: Mapping[int, Api] = {
    api.key: api
    for api in (
        Api(PRODUCE, "produce", 0, 9, 9, served_from=3),
        Api(FETCH, "fetch", 4, 12, 12),
        Api(2, "list_offsets", 1, 7, 6),
        Api(3, "metadata", 0, 12, 9),
        Api(8, "offset_commit", 2, 8, 8),
        Api(9, "offset_fetch", 1, 8, 6),
        Api(10, "find_coordinator", 0, 4, 3),
        Api(11, "join_group", 0, 9, 6),
        Api(12, "heartbeat", 0, 4, 4),
        Api(13, "leave_group", 0, 5, 4),
        Api(14, "sync_group", 0, 5, 4),
        Api(15, "describe_groups", 0, 5, 5),
        Api(16, "list_groups", 0, 4, 3),
        Api(SASL_HANDSHAKE, "sasl_handshake", 0, 1, 2, served_from=1),
        Api(API_VERSIONS, "api_versions", 0, 3, 3),
        Api(19, "create_topics", 0, 7, 5),
        Api(20, "delete_topics", 0, 5, 4),
        Api(21, "delete_records", 0, 2, 2),
        Api(22, "init_producer_id", 0, 4, 2),
        Api(23, "offset_for_leader_epoch", 2, 4, 4),
        Api(32, "describe_configs", 0, 4, 4),
        Api(33, "alter_configs", 0, 2, 2),
        Api(35, "describe_log_dirs", 1, 4, 2),
        Api(SASL_AUTHENTICATE, "sasl_authenticate", 0, 2, 2),
        Api(37, "create_partitions", 0, 3, 2),
        Api(42, "delete_groups", 0, 2, 2),
        Api(44, "incremental_alter_configs", 0, 1, 1),
        Api(47, "offset_delete", 0, 0, 1),
        Api(60, "describe_cluster", 0, 1, 0),
    )
}


def find_api(key: int) -> Api | None:
    """The served API of that key."""
    return APIS.get(key)
