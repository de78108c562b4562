"""The members of a group, and what is asked and answered."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from headworks._kafka.error_codes import ErrorCode

__all__ = [
    "ClassicGroupMember",
    "JoinCallback",
    "JoinRequest",
    "JoinResponse",
    "SyncCallback",
    "SyncResponse",
]


@dataclass(frozen=True, slots=True)
class JoinRequest:
    """A request to join; times in seconds. `needs_id`: a new member must come back with its id."""

    member_id: str
    instance_id: str | None
    client_id: str
    host: str
    session_timeout: float
    rebalance_timeout: float
    protocol_type: str
    protocols: tuple[tuple[str, bytes], ...]
    needs_id: bool
    may_skip_assignment: bool = False

    @property
    def size(self) -> int:
        """Bytes that are kept while the member is in the group."""
        names = len(self.client_id) + len(self.instance_id or "")
        return names + sum(len(name) + len(metadata) for name, metadata in self.protocols)


@dataclass(frozen=True, slots=True)
class JoinResponse:
    """The answer to a join; `members` (id, instance id, metadata) only for the leader."""

    error: ErrorCode
    member_id: str = ""
    generation: int = -1
    protocol_type: str | None = None
    protocol: str | None = None
    leader: str = ""
    skip_assignment: bool = False
    members: Sequence[tuple[str, str | None, bytes]] = ()


@dataclass(frozen=True, slots=True)
class SyncResponse:
    """The answer to a sync."""

    error: ErrorCode
    assignment: bytes = b""
    protocol_type: str | None = None
    protocol: str | None = None


JoinCallback = Callable[[JoinResponse], None]
SyncCallback = Callable[[SyncResponse], None]


@dataclass(slots=True)
class ClassicGroupMember:
    """A member: who it is, what it can do, and what it waits for."""

    member_id: str
    instance_id: str | None
    client_id: str
    host: str
    session_timeout: float
    rebalance_timeout: float
    protocols: tuple[tuple[str, bytes], ...]
    deadline: float  # when its session ends, unless it is heard of
    assignment: bytes = b""
    joining: JoinCallback | None = field(default=None, repr=False)
    syncing: SyncCallback | None = field(default=None, repr=False)

    @property
    def size(self) -> int:
        """Bytes that its words take."""
        names = len(self.member_id) + len(self.client_id) + len(self.instance_id or "")
        words = sum(len(name) + len(metadata) for name, metadata in self.protocols)
        return names + words + len(self.assignment)

    def metadata(self, protocol: str | None) -> bytes:
        """What the member said for a protocol."""
        return dict(self.protocols).get(protocol or "", b"")

    def answer_join(self, joined: JoinResponse) -> None:
        """Answer the join that waits, if one does."""
        reply, self.joining = self.joining, None
        if reply is not None:
            reply(joined)

    def answer_sync(self, synced: SyncResponse) -> None:
        """Answer the sync that waits, if one does."""
        reply, self.syncing = self.syncing, None
        if reply is not None:
            reply(synced)
