"""Every API that the broker serves: its handler, and the roles that it requires.

The versions come from the protocol's table (`headworks._kafka.protocol.apis`). To add an API, add
its key and versions there and one line here.

Rule: a handler is missing where the server answers by itself. Produce and Fetch do not copy
records, the reply of ApiVersions is always ready, and SASL belongs to the connection.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from headworks._broker.handlers.config_admin import (
    alter_configs,
    describe_configs,
    incremental_alter_configs,
    list_config_resources,
)
from headworks._broker.handlers.consumer_groups import (
    consumer_group_describe,
    consumer_group_heartbeat,
)
from headworks._broker.handlers.describe_topic_partitions import describe_topic_partitions
from headworks._broker.handlers.group_admin import (
    delete_groups,
    describe_groups,
    list_groups,
    offset_delete,
)
from headworks._broker.handlers.list_offsets import list_offsets
from headworks._broker.handlers.log_admin import (
    delete_records,
    describe_cluster,
    describe_log_dirs,
    offset_for_leader_epoch,
)
from headworks._broker.handlers.membership import (
    find_coordinator,
    heartbeat,
    join_group,
    leave_group,
    sync_group,
)
from headworks._broker.handlers.metadata import metadata
from headworks._broker.handlers.node import Handler
from headworks._broker.handlers.offsets import offset_commit, offset_fetch
from headworks._broker.handlers.permissions import RequiredRoles
from headworks._broker.handlers.producer_id import init_producer_id
from headworks._broker.handlers.topic_admin import (
    alter_partition_reassignments,
    create_partitions,
    create_topics,
    delete_topics,
    list_partition_reassignments,
)
from headworks._broker.handlers.transaction_admin import (
    describe_producers,
    describe_transactions,
    list_transactions,
    write_txn_markers,
)
from headworks._broker.handlers.transactional import (
    add_offsets_to_txn,
    add_partitions_to_txn,
    end_txn,
    txn_offset_commit,
)
from headworks._kafka.protocol.apis import APIS, Api, ApiKey
from headworks._server.security import Role

_READ = (Role.READER,)
_WRITE = (Role.WRITER,)
_SEE = (Role.READER, Role.WRITER)
_MANAGE = (Role.ADMIN,)


@dataclass(frozen=True, slots=True)
class BrokerApi:
    """One served API; `handler` is None where the server answers by itself."""

    key: ApiKey
    required: RequiredRoles
    handler: Handler | None = None

    @property
    def versions(self) -> Api:
        """The versions that are served, and how they are encoded."""
        return APIS[self.key]


def _api(
    key: ApiKey,
    handler: Handler | None,
    *,
    topic: tuple[Role, ...] = (),
    group: tuple[Role, ...] = (),
    all_topics: tuple[Role, ...] = (),
    any_topic: tuple[Role, ...] = (),
) -> BrokerApi:
    return BrokerApi(key, RequiredRoles(topic, group, all_topics, any_topic), handler)


BROKER_APIS: Mapping[int, BrokerApi] = {
    api.key: api
    for api in (
        _api(ApiKey.PRODUCE, None, topic=_WRITE),
        _api(ApiKey.FETCH, None, topic=_READ),
        _api(ApiKey.LIST_OFFSETS, list_offsets, topic=_READ),
        _api(ApiKey.METADATA, metadata, topic=_SEE),  # creating a topic by it requires WRITER
        _api(ApiKey.OFFSET_COMMIT, offset_commit, topic=_READ, group=_READ),
        _api(ApiKey.OFFSET_FETCH, offset_fetch, topic=_READ, group=_READ),
        _api(ApiKey.FIND_COORDINATOR, find_coordinator, group=_READ),
        _api(ApiKey.JOIN_GROUP, join_group, group=_READ),
        _api(ApiKey.HEARTBEAT, heartbeat, group=_READ),
        _api(ApiKey.LEAVE_GROUP, leave_group, group=_READ),
        _api(ApiKey.SYNC_GROUP, sync_group, group=_READ),
        _api(ApiKey.DESCRIBE_GROUPS, describe_groups, group=_READ),
        _api(ApiKey.LIST_GROUPS, list_groups, group=_READ),
        _api(ApiKey.SASL_HANDSHAKE, None),
        _api(ApiKey.API_VERSIONS, None),
        _api(ApiKey.CREATE_TOPICS, create_topics, topic=_MANAGE),
        _api(ApiKey.DELETE_TOPICS, delete_topics, topic=_MANAGE),
        _api(ApiKey.DELETE_RECORDS, delete_records, topic=_MANAGE),
        _api(ApiKey.INIT_PRODUCER_ID, init_producer_id, any_topic=_WRITE),
        _api(ApiKey.OFFSET_FOR_LEADER_EPOCH, offset_for_leader_epoch, topic=_READ),
        _api(ApiKey.ADD_PARTITIONS_TO_TXN, add_partitions_to_txn, topic=_WRITE),
        _api(ApiKey.ADD_OFFSETS_TO_TXN, add_offsets_to_txn, group=_READ),
        _api(ApiKey.END_TXN, end_txn, any_topic=_WRITE),
        _api(ApiKey.WRITE_TXN_MARKERS, write_txn_markers, all_topics=_MANAGE),
        _api(ApiKey.TXN_OFFSET_COMMIT, txn_offset_commit, topic=_READ, group=_READ),
        # of topics, and of the broker
        _api(
            ApiKey.DESCRIBE_CONFIGS,
            describe_configs,
            topic=_SEE,
            group=_READ,
            all_topics=_MANAGE,
        ),
        _api(ApiKey.ALTER_CONFIGS, alter_configs, topic=_MANAGE, group=_MANAGE),
        _api(ApiKey.DESCRIBE_LOG_DIRS, describe_log_dirs, all_topics=_MANAGE),
        _api(ApiKey.SASL_AUTHENTICATE, None),
        _api(ApiKey.CREATE_PARTITIONS, create_partitions, topic=_MANAGE),
        _api(ApiKey.DELETE_GROUPS, delete_groups, group=_MANAGE),
        _api(
            ApiKey.INCREMENTAL_ALTER_CONFIGS,
            incremental_alter_configs,
            topic=_MANAGE,
            group=_MANAGE,
        ),
        _api(ApiKey.ALTER_PARTITION_REASSIGNMENTS, alter_partition_reassignments, topic=_MANAGE),
        _api(ApiKey.LIST_PARTITION_REASSIGNMENTS, list_partition_reassignments, all_topics=_MANAGE),
        _api(ApiKey.OFFSET_DELETE, offset_delete, topic=_READ, group=_MANAGE),
        _api(ApiKey.DESCRIBE_CLUSTER, describe_cluster),  # addresses that every client knows
        _api(ApiKey.DESCRIBE_PRODUCERS, describe_producers, topic=_READ),
        _api(ApiKey.DESCRIBE_TRANSACTIONS, describe_transactions, all_topics=_MANAGE),
        _api(ApiKey.LIST_TRANSACTIONS, list_transactions, all_topics=_MANAGE),
        _api(ApiKey.CONSUMER_GROUP_HEARTBEAT, consumer_group_heartbeat, topic=_READ, group=_READ),
        _api(ApiKey.CONSUMER_GROUP_DESCRIBE, consumer_group_describe, group=_READ),
        _api(
            ApiKey.LIST_CONFIG_RESOURCES,
            list_config_resources,
            topic=_SEE,
            group=_READ,
            all_topics=_MANAGE,
        ),
        _api(ApiKey.DESCRIBE_TOPIC_PARTITIONS, describe_topic_partitions, topic=_SEE),
    )
}

# The same by itself, for `Authorizer`
REQUIRED_ROLES: Mapping[int, RequiredRoles] = {
    key: api.required for key, api in BROKER_APIS.items()
}
