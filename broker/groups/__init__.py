"""Consumer groups, the classic protocol: a state machine without clock, sockets or storage."""

from headworks._broker.groups.coordinator import GroupCoordinator, GroupSettings
from headworks._broker.groups.group import Group, State
from headworks._broker.groups.members import Join, Joined, Member, Synced

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
