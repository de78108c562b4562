"""The topics that this broker hosts: configs, partitions, flushes, compaction, and changes."""

from headworks._broker.topics.config import CONFIGS, InvalidConfigError, TopicConfig, resolve_config
from headworks._broker.topics.flusher import Flusher
from headworks._broker.topics.hosted_topics import MAX_PARTITIONS, PRODUCER_SECONDS, HostedTopics
from headworks._broker.topics.partition import HostedPartition, StorageFailureError
from headworks._broker.topics.topic import HostedTopic, InvalidTopicError, TooManyPartitionsError
from headworks._broker.topics.topic_changes import TopicChanges
from headworks._broker.topics.topic_lookup import TopicLookup

__all__ = [
    "CONFIGS",
    "MAX_PARTITIONS",
    "PRODUCER_SECONDS",
    "Flusher",
    "HostedPartition",
    "HostedTopic",
    "HostedTopics",
    "InvalidConfigError",
    "InvalidTopicError",
    "StorageFailureError",
    "TooManyPartitionsError",
    "TopicChanges",
    "TopicConfig",
    "TopicLookup",
    "resolve_config",
]
