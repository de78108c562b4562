"""The paths in ZooKeeper: the directories of brokers, consumers, and the cluster.

- `/brokers/ids/ID`, ephemeral: a living broker, and its address.
- `/brokers/folders/ID`, persistent: the data folder of a broker id.
- `/brokers/topics/TOPIC`, persistent: the assignment and the configs of a topic.
- `/brokers/topics/TOPIC/ID`, ephemeral: how many partitions that broker serves.
- `/consumers/GROUP/ids/MEMBER`, ephemeral: a member, with its subscription.
- `/consumers/GROUP/owners/TOPIC/ID-N`, ephemeral: the member that reads partition N of ID.
- `/consumers/GROUP/offsets/TOPIC/ID-N`, persistent: the committed offset.
- `/cluster/id, /cluster/producer_ids`, persistent: the cluster id; allocated producer ids.
- `/cluster/group_configs`, persistent: the configs of the groups that have own ones.

Rules:

- These are pure functions of text.
- The name of a group, topic, or member is always one path component: characters with a meaning in
  ZooKeeper are percent-encoded as in URLs.
- A function `*_of` decodes a component, and raises ValueError for one that we did not write.
"""

from __future__ import annotations

from urllib.parse import quote, unquote

BROKERS = "/brokers/ids"
FOLDERS = "/brokers/folders"
TOPICS = "/brokers/topics"
CONSUMERS = "/consumers"
CLUSTER_ID = "/cluster/id"
PRODUCER_IDS = "/cluster/producer_ids"
GROUP_CONFIGS = "/cluster/group_configs"

_EMPTY = "%"  # quoting never leaves a percent sign alone


def component(name: str) -> str:
    """Encode a name as one component of a path."""
    if name in (".", ".."):
        return name.replace(".", "%2E")
    return quote(name, safe=":@+=,!$&'()*; ") or _EMPTY


def name_of(component: str) -> str:
    """Decode the name in a component."""
    return "" if component == _EMPTY else unquote(component, errors="strict")


def broker(number: int) -> str:
    """Return the path of a living broker."""
    return f"{BROKERS}/{number}"


def folder(number: int) -> str:
    """Return the path of the folder name of a broker id."""
    return f"{FOLDERS}/{number}"


def topic(name: str) -> str:
    """Return the path of a topic."""
    return f"{TOPICS}/{component(name)}"


def served(name: str, broker: int) -> str:
    """Return the path of the number of partitions that a broker serves."""
    return f"{topic(name)}/{broker}"


def group(name: str) -> str:
    """Return the path of a consumer group."""
    return f"{CONSUMERS}/{component(name)}"


def members(group_name: str) -> str:
    """Return the path of the members of a group."""
    return f"{group(group_name)}/ids"


def member(group_name: str, member_id: str) -> str:
    """Return the path of a member."""
    return f"{members(group_name)}/{component(member_id)}"


def owners(group_name: str) -> str:
    """Return the path of the claims of a group."""
    return f"{group(group_name)}/owners"


def group_topic_owners(group_name: str, topic_name: str) -> str:
    """Return the path of the claims of a group in one topic."""
    return f"{owners(group_name)}/{component(topic_name)}"


def owner(group_name: str, topic_name: str, broker: int, partition: int) -> str:
    """Return the path of the claim of a partition."""
    place = broker_partition(broker, partition)
    return f"{group_topic_owners(group_name, topic_name)}/{place}"


def offsets(group_name: str) -> str:
    """Return the path of the committed offsets of a group."""
    return f"{group(group_name)}/offsets"


def group_topic_offsets(group_name: str, topic_name: str) -> str:
    """Return the path of the committed offsets of a group in one topic."""
    return f"{offsets(group_name)}/{component(topic_name)}"


def offset(group_name: str, topic_name: str, broker: int, partition: int) -> str:
    """Return the path of a committed offset."""
    place = broker_partition(broker, partition)
    return f"{group_topic_offsets(group_name, topic_name)}/{place}"


def broker_partition(broker: int, partition: int) -> str:
    """Return the component for a partition with its broker, as in claims and offsets."""
    return f"{broker}-{partition}"


def broker_partition_of(component: str) -> tuple[int, int]:
    """Decode a component into broker and partition."""
    broker, _, partition = component.partition("-")
    return int(broker), int(partition)
