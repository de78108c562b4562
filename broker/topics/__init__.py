"""The topics that this broker serves: configs, partitions, flushing, and the catalogue of all."""

from broker.topics.catalogue import MAX_PARTITIONS, PRODUCER_SECONDS, Catalogue
from broker.topics.config import CONFIGS, InvalidConfigError, TopicConfig, resolve_config
from broker.topics.finder import Finder
from broker.topics.flusher import Flusher
from broker.topics.partition import Partition, StorageFailureError
from broker.topics.served import InvalidTopicError, ServedTopic, TooManyPartitionsError

__all__ = [
    "CONFIGS",
    "MAX_PARTITIONS",
    "PRODUCER_SECONDS",
    "Catalogue",
    "Finder",
    "Flusher",
    "InvalidConfigError",
    "InvalidTopicError",
    "Partition",
    "ServedTopic",
    "StorageFailureError",
    "TooManyPartitionsError",
    "TopicConfig",
    "resolve_config",
]
