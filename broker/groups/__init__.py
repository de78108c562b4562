"""Consumer groups, the classic protocol: a state machine without clock, sockets or storage."""

from broker.groups.coordinator import GroupCoordinator, GroupSettings
from broker.groups.group import Group, State
from broker.groups.members import Join, Joined, Member, Synced

__all__ = [
    "Group",
    "GroupCoordinator",
    "GroupSettings",
    "Join",
    "Joined",
    "Member",
    "State",
    "Synced",
]
