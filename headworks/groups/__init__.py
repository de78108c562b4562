"""Consumer groups seen from outside: who is in them, how far they are, and moving them.

- `groups`: Groups, both kinds as one.
- `classic`: groups that a broker balances, through Kafka's administration protocol.
- `decentralised`: groups that balance themselves, through ZooKeeper.
- `log_ends`: ends of logs, offsets by time, times by offset.
- `moving`: where a reset or an import puts a group; the file of exported offsets.
- `model`: what is told of a group.

Rules: no call per topic; a group in which somebody is, is never moved.
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
