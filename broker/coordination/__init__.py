"""Where topics, their configs, committed offsets, producer ids and the other brokers are known."""

from headworks._broker.coordination.interface import (
    ClusterMember,
    CommittedOffset,
    ConfigChange,
    Coordination,
    StoreFailureError,
    Topic,
    TopicExistsError,
)
from headworks._broker.coordination.local import LocalCoordination

__all__ = [
    "ClusterMember",
    "CommittedOffset",
    "ConfigChange",
    "Coordination",
    "LocalCoordination",
    "StoreFailureError",
    "Topic",
    "TopicExistsError",
]
