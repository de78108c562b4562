"""The topics that this broker serves: configs, partitions, flushing, and the catalogue of all."""

from headworks._broker.topics.config import CONFIGS, InvalidConfigError, TopicConfig, resolve_config
from headworks._broker.topics.flusher import Flusher
from headworks._broker.topics.hosted_topics import MAX_PARTITIONS, PRODUCER_SECONDS, Catalogue
from headworks._broker.topics.partition import Partition, StorageFailureError
from headworks._broker.topics.topic import InvalidTopicError, ServedTopic, TooManyPartitionsError
from headworks._broker.topics.topic_lookup import Finder

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
