"""Consumer groups: two state machines without clock, sockets, or storage, and their coordinator.

`ClassicGroup` is the classic protocol, in which a member assigns. `ConsumerGroup` is that of
KIP-848, in which the broker assigns.
"""

from headworks._broker.groups.assignors import ASSIGNORS
from headworks._broker.groups.config import GROUP_CONFIGS, checked, default_of
from headworks._broker.groups.consumer_group import ConsumerGroup
from headworks._broker.groups.consumer_members import (
    ConsumerAnswer,
    ConsumerGroupMember,
    ConsumerGroupTimes,
    ConsumerHeartbeat,
    SubscribableTopics,
    TopicShape,
)
from headworks._broker.groups.coordinator import GroupCoordinator, GroupSettings
from headworks._broker.groups.group import ClassicGroup
from headworks._broker.groups.members import (
    ClassicGroupMember,
    JoinRequest,
    JoinResponse,
    RebalanceState,
    SyncResponse,
    subscribed_topics,
)
from headworks._broker.groups.topic_pattern import InvalidPatternError, TopicPattern

__all__ = [
    "ASSIGNORS",
    "GROUP_CONFIGS",
    "ClassicGroup",
    "ClassicGroupMember",
    "ConsumerAnswer",
    "ConsumerGroup",
    "ConsumerGroupMember",
    "ConsumerGroupTimes",
    "ConsumerHeartbeat",
    "GroupCoordinator",
    "GroupSettings",
    "InvalidPatternError",
    "JoinRequest",
    "JoinResponse",
    "RebalanceState",
    "SubscribableTopics",
    "SyncResponse",
    "TopicPattern",
    "TopicShape",
    "checked",
    "default_of",
    "subscribed_topics",
]
