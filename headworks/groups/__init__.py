"""Consumer groups from outside: list, describe, reset, and delete them.

- `_groups`: Groups, both kinds as one.
- `_classic`: groups that a broker balances, through Kafka's administration protocol.
- `_decentralized`: groups that balance themselves, through ZooKeeper.
- `_log_ends`: log start and end offsets, offsets by time, times by offset.
- `_moving`: the offsets that a reset sets, and the file of exported offsets.
- `_model`: the description of a group.

Rules: no call per topic. A group that has members is never moved.
"""

from headworks.groups._groups import Groups
from headworks.groups._model import (
    GroupDescription,
    GroupKind,
    GroupListing,
    GroupPosition,
    MemberDescription,
    PartitionOffset,
    TopicPartition,
)

__all__ = [
    "GroupDescription",
    "GroupKind",
    "GroupListing",
    "GroupPosition",
    "Groups",
    "MemberDescription",
    "PartitionOffset",
    "TopicPartition",
]
