"""A group without a coordinator: its members share the work by themselves, over ZooKeeper.

- `assignment`: who reads what (pure).
- `subscription`: what a member wants, as topics or as a filter (pure).
- `directory`: the group's directories: members, owners, offsets.
- `member`: the member: watches, releases, claims, commits.
- `stream`: what the member's reader does, in the thread of who polls.

Rules: nothing is read before its partition is claimed, and nothing is delivered that another member
may have been given; positions are written only together with the proof that the member is alive.
"""

from consumer_sdk._zookeeper_group.member import MemberTiming, ZooKeeperMember
from consumer_sdk._zookeeper_group.stream import ZooKeeperStream

__all__ = ["MemberTiming", "ZooKeeperMember", "ZooKeeperStream"]
