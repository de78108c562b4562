"""The coordination store: topics, configs, committed offsets, producer ids, and other brokers."""

from headworks._broker.coordination.committed_offset import CommittedOffset
from headworks._broker.coordination.interface import (
    INTERNAL_ID_VERSION,
    ClusterMember,
    ConfigChange,
    Coordination,
    StoreFailureError,
    Topic,
    TopicExistsError,
    new_internal_topic_id,
    new_topic_id,
)
from headworks._broker.coordination.local import LocalCoordination

__all__ = [
    "INTERNAL_ID_VERSION",
    "ClusterMember",
    "CommittedOffset",
    "ConfigChange",
    "Coordination",
    "LocalCoordination",
    "StoreFailureError",
    "Topic",
    "TopicExistsError",
    "new_internal_topic_id",
    "new_topic_id",
]
