"""The topics that this broker serves: configs, partitions, flushing, and the catalogue of all."""

from broker.topics.catalogue import Catalogue, InvalidTopicError, ServedTopic
from broker.topics.config import CONFIGS, InvalidConfigError, TopicConfig, resolve_config
from broker.topics.flusher import Flusher
from broker.topics.partition import Partition, StorageFailureError

__all__ = [
    "CONFIGS",
    "Catalogue",
    "Flusher",
    "InvalidConfigError",
    "InvalidTopicError",
    "Partition",
    "ServedTopic",
    "StorageFailureError",
    "TopicConfig",
    "resolve_config",
]
