"""Where everything lies in ZooKeeper: the directories of brokers, consumers and the cluster.

    /brokers/ids/ID                          ephemeral   who is alive, and where clients reach it
    /brokers/folders/ID                      persistent  which data folder belongs to the id
    /brokers/topics/TOPIC                    persistent  which broker has which partition; configs
    /brokers/topics/TOPIC/ID                 ephemeral   how many of them that broker serves now
    /consumers/GROUP/ids/MEMBER              ephemeral   a member, with its subscription
    /consumers/GROUP/owners/TOPIC/ID-N       ephemeral   the member that reads partition N of ID
    /consumers/GROUP/offsets/TOPIC/ID-N      persistent  the next offset to read there
    /cluster/id, /cluster/producer_ids       persistent  the cluster's name; ids given to producers

Rules: pure. A name that somebody chose (a group, a topic, a member) is one path component whatever
it holds: what ZooKeeper gives a meaning is written as in URLs. `*_of` reads a component back, and
raises ValueError for one that nobody of ours wrote.
"""

from __future__ import annotations

from urllib.parse import quote, unquote

__all__ = [
    "BROKERS",
    "CLUSTER_ID",
    "CONSUMERS",
    "FOLDERS",
    "PRODUCER_IDS",
    "TOPICS",
    "broker",
    "broker_partition",
    "broker_partition_of",
    "component",
    "folder",
    "group",
    "group_topic_offsets",
    "group_topic_owners",
    "member",
    "members",
    "name_of",
    "offset",
    "offsets",
    "owner",
    "owners",
    "served",
    "topic",
]

BROKERS = "/brokers/ids"
FOLDERS = "/brokers/folders"
TOPICS = "/brokers/topics"
CONSUMERS = "/consumers"
CLUSTER_ID = "/cluster/id"
PRODUCER_IDS = "/cluster/producer_ids"

_EMPTY = "%"  # quoting never leaves a percent sign alone


def component(name: str) -> str:
    """A chosen name as one component of a path."""
    if name in (".", ".."):
        return name.replace(".", "%2E")
    return quote(name, safe=":@+=,!$&'()*; ") or _EMPTY


def name_of(component: str) -> str:
    """The name that `component` was made of."""
    return "" if component == _EMPTY else unquote(component, errors="strict")


def broker(number: int) -> str:
    """A living broker."""
    return f"{BROKERS}/{number}"


def folder(number: int) -> str:
    """The data folder that belongs to a broker id."""
    return f"{FOLDERS}/{number}"


def topic(name: str) -> str:
    """A topic."""
    return f"{TOPICS}/{component(name)}"


def served(name: str, broker: int) -> str:
    """What a living broker serves of a topic."""
    return f"{topic(name)}/{broker}"


def group(name: str) -> str:
    """A group of consumers."""
    return f"{CONSUMERS}/{component(name)}"


def members(group_name: str) -> str:
    """The members of a group."""
    return f"{group(group_name)}/ids"


def member(group_name: str, member_id: str) -> str:
    """One member."""
    return f"{members(group_name)}/{component(member_id)}"


def owners(group_name: str) -> str:
    """The topics of which a group's members own partitions."""
    return f"{group(group_name)}/owners"


def group_topic_owners(group_name: str, topic_name: str) -> str:
    """The owned partitions of one topic."""
    return f"{owners(group_name)}/{component(topic_name)}"


def owner(group_name: str, topic_name: str, broker: int, partition: int) -> str:
    """Who owns a partition."""
    place = broker_partition(broker, partition)
    return f"{group_topic_owners(group_name, topic_name)}/{place}"


def offsets(group_name: str) -> str:
    """The topics in which a group has positions."""
    return f"{group(group_name)}/offsets"


def group_topic_offsets(group_name: str, topic_name: str) -> str:
    """A group's positions in one topic."""
    return f"{offsets(group_name)}/{component(topic_name)}"


def offset(group_name: str, topic_name: str, broker: int, partition: int) -> str:
    """A group's position in a partition."""
    place = broker_partition(broker, partition)
    return f"{group_topic_offsets(group_name, topic_name)}/{place}"


def broker_partition(broker: int, partition: int) -> str:
    """A partition with the broker that has it, as owners and offsets name it."""
    return f"{broker}-{partition}"


def broker_partition_of(component: str) -> tuple[int, int]:
    """Broker and partition."""
    broker, _, partition = component.partition("-")
    return int(broker), int(partition)
