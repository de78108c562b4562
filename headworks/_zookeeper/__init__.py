"""ZooKeeper for brokers and consumers: sessions, leases, paths, and the content of nodes."""

from headworks._zookeeper.living_brokers import BrokerWatch, live_brokers
from headworks._zookeeper.nodes import (
    BrokerNode,
    GroupConfigsNode,
    GroupNode,
    MemberNode,
    OffsetNode,
    TopicNode,
)
from headworks._zookeeper.session import (
    EnsembleAddress,
    SessionState,
    ZooKeeperSession,
    open_session,
    parse_address,
)

__all__ = [
    "BrokerNode",
    "BrokerWatch",
    "EnsembleAddress",
    "GroupConfigsNode",
    "GroupNode",
    "MemberNode",
    "OffsetNode",
    "SessionState",
    "TopicNode",
    "ZooKeeperSession",
    "live_brokers",
    "open_session",
    "parse_address",
]
