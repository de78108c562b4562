"""The coordination store: topics, configs, committed offsets, producer ids, and other brokers."""

from headworks._broker.coordination.committed_offset import CommittedOffset
from headworks._broker.coordination.interface import (
    ClusterMember,
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
