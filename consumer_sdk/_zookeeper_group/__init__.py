"""A group without a coordinator: its members share the partitions by themselves, over ZooKeeper.

- `assignment`: which stream reads which partition (pure).
- `subscription`: the topics that a member reads, by name or by filter (pure).
- `directory`: the group's directories in ZooKeeper: members, owners, offsets.
- `member`: one process in the group: it watches, releases, claims, and commits.
- `stream`: one reader of a member, in the thread that polls.

Rules: a member reads a partition only after it has claimed it, and returns no message that another
member may own. It writes offsets only together with the proof that it is a member.
"""

from consumer_sdk._zookeeper_group.member import MemberTiming, ZooKeeperMember
from consumer_sdk._zookeeper_group.stream import ZooKeeperStream

__all__ = ["MemberTiming", "ZooKeeperMember", "ZooKeeperStream"]
