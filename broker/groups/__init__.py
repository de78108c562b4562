"""Consumer groups, the classic protocol: a state machine without clock, sockets or storage."""

from headworks._broker.groups.coordinator import GroupCoordinator, GroupSettings
from headworks._broker.groups.group import ClassicGroup, ClassicGroupState
from headworks._broker.groups.members import (
    ClassicGroupMember,
    JoinRequest,
    JoinResponse,
    SyncResponse,
)

__all__ = [
    "ClassicGroup",
    "ClassicGroupMember",
    "ClassicGroupState",
    "GroupCoordinator",
    "GroupSettings",
    "JoinRequest",
    "JoinResponse",
    "SyncResponse",
]
