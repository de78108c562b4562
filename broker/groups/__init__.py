"""Consumer groups, the classic protocol: a state machine without clock, sockets, or storage."""

from headworks._broker.groups.coordinator import GroupCoordinator, GroupSettings
from headworks._broker.groups.group import ClassicGroup
from headworks._broker.groups.members import (
    ClassicGroupMember,
    JoinRequest,
    JoinResponse,
    RebalanceState,
    SyncResponse,
)

__all__ = [
    "ClassicGroup",
    "ClassicGroupMember",
    "GroupCoordinator",
    "GroupSettings",
    "JoinRequest",
    "JoinResponse",
    "RebalanceState",
    "SyncResponse",
]
