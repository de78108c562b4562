"""What the broker answers: a table of handlers, one per API.

Produce and Fetch are not in it: the server drives them by hand, without copying records.
ApiVersions is not either, as its reply is always ready, nor is SASL, which is the connection's.
"""

from __future__ import annotations

from collections.abc import Mapping

from headworks._broker.handlers.client import Authority, Client
from headworks._broker.handlers.config_admin import (
    alter_configs,
    describe_configs,
    incremental_alter_configs,
)
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
from headworks._broker.handlers.node import Handler, Node, Request
from headworks._broker.handlers.offsets import offset_commit, offset_fetch
from headworks._broker.handlers.producer_id import init_producer_id
from headworks._broker.handlers.topic_admin import create_partitions, create_topics, delete_topics

__all__ = ["HANDLERS", "Authority", "Client", "Handler", "Node", "Request"]

HANDLERS: Mapping[int, Handler] = {
    2: list_offsets,
    3: metadata,
    8: offset_commit,
    9: offset_fetch,
    10: find_coordinator,
    11: join_group,
    12: heartbeat,
    13: leave_group,
    14: sync_group,
    15: describe_groups,
    16: list_groups,
    19: create_topics,
    20: delete_topics,
    21: delete_records,
    22: init_producer_id,
    23: offset_for_leader_epoch,
    32: describe_configs,
    33: alter_configs,
    35: describe_log_dirs,
    37: create_partitions,
    42: delete_groups,
    44: incremental_alter_configs,
    47: offset_delete,
    60: describe_cluster,
}
