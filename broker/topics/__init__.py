"""The topics that this broker hosts: configs, partitions, flushes, compaction, and changes."""

from headworks._broker.topics.config import (
    BROKER_NAMES,
    CONFIGS,
    InvalidConfigError,
    RefusedRecords,
    SchemaValidation,
    TopicConfig,
    resolve_config,
)
from headworks._broker.topics.flusher import Flusher
from headworks._broker.topics.hosted_topics import (
    MAX_PARTITIONS,
    PRODUCER_SECONDS,
    SCRUB_MB_PER_SECOND,
    HostedTopics,
)
from headworks._broker.topics.offsets_topic import open_offsets_topic
from headworks._broker.topics.partition import HostedPartition, StorageFailureError
from headworks._broker.topics.subject_rule import MissingSubjectError, SubjectRule
from headworks._broker.topics.topic import (
    KAFKAS_TOPICS,
    HostedTopic,
    InvalidTopicError,
    TooManyPartitionsError,
)
from headworks._broker.topics.topic_changes import TopicChanges
from headworks._broker.topics.topic_lookup import TopicLookup

__all__ = [
    "BROKER_NAMES",
    "CONFIGS",
    "KAFKAS_TOPICS",
    "MAX_PARTITIONS",
    "PRODUCER_SECONDS",
    "SCRUB_MB_PER_SECOND",
    "Flusher",
    "HostedPartition",
    "HostedTopic",
    "HostedTopics",
    "InvalidConfigError",
    "InvalidTopicError",
    "MissingSubjectError",
    "RefusedRecords",
    "SchemaValidation",
    "StorageFailureError",
    "SubjectRule",
    "TooManyPartitionsError",
    "TopicChanges",
    "TopicConfig",
    "TopicLookup",
    "open_offsets_topic",
    "resolve_config",
]
