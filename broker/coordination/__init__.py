"""Where topics, their configs, committed offsets, producer ids and the other brokers are known."""

from headworks._broker.coordination.interface import (
    Committed,
    ConfigChange,
    Coordination,
    Member,
    StoreFailureError,
    Topic,
    TopicExistsError,
)
from headworks._broker.coordination.local import LocalCoordination

__all__ = [
    "Committed",
    "ConfigChange",
    "Coordination",
    "LocalCoordination",
    "Member",
    "StoreFailureError",
    "Topic",
    "TopicExistsError",
]
