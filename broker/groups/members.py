"""The members of a group, and the requests and responses of joining."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field
from enum import Enum

from headworks._broker.groups.embedded_protocol import subscribed_names
from headworks._kafka.error_codes import ErrorCode


class RebalanceState(Enum):
    """The states, with the names that clients see."""

    EMPTY = "Empty"
    PREPARING = "PreparingRebalance"
    COMPLETING = "CompletingRebalance"
    STABLE = "Stable"


@dataclass(frozen=True, slots=True)
class JoinRequest:
    """A JoinGroup request; timeouts in seconds."""

    member_id: str
    instance_id: str | None
    client_id: str
    host: str
    session_timeout: float
    rebalance_timeout: float
    protocol_type: str
    protocols: tuple[tuple[str, bytes], ...]  # names and metadata, the preferred first
    needs_id: bool  # whether a new member must join again with the id that it gets
    may_skip_assignment: bool = False

    @property
    def size(self) -> int:
        """Bytes that the group keeps of this request."""
        names = len(self.client_id) + len(self.instance_id or "")
        return names + sum(len(name) + len(metadata) for name, metadata in self.protocols)


@dataclass(frozen=True, slots=True)
class JoinResponse:
    """The response to a join; only the leader gets `members` (id, instance id, metadata)."""

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
    """The response to a sync."""

    error: ErrorCode
    assignment: bytes = b""
    protocol_type: str | None = None
    protocol: str | None = None


JoinCallback = Callable[[JoinResponse], None]
SyncCallback = Callable[[SyncResponse], None]


@dataclass(slots=True)
class ClassicGroupMember:
    """A member of a group; timeouts in seconds."""

    member_id: str
    instance_id: str | None
    client_id: str
    host: str
    session_timeout: float
    rebalance_timeout: float
    protocols: tuple[tuple[str, bytes], ...]
    deadline: float  # when its session times out
    assignment: bytes = b""  # that the leader has given it
    joining: JoinCallback | None = field(default=None, repr=False)  # of a join without an answer
    syncing: SyncCallback | None = field(default=None, repr=False)  # of a sync without an answer

    @classmethod
    def from_join(
        cls, member_id: str, join: JoinRequest, now: float, reply: JoinCallback
    ) -> ClassicGroupMember:
        """Return a new member whose join waits for `reply`."""
        return cls(
            member_id,
            join.instance_id,
            join.client_id,
            join.host,
            join.session_timeout,
            join.rebalance_timeout,
            join.protocols,
            now + join.session_timeout,
            joining=reply,
        )

    @property
    def size(self) -> int:
        """Bytes of memory that its fields take."""
        names = len(self.member_id) + len(self.client_id) + len(self.instance_id or "")
        words = sum(len(name) + len(metadata) for name, metadata in self.protocols)
        return names + words + len(self.assignment)

    @property
    def waiting(self) -> bool:
        """Whether a join or a sync waits for an answer."""
        return self.joining is not None or self.syncing is not None

    def rejoin(self, join: JoinRequest, reply: JoinCallback) -> None:
        """Take over a new join, and answer the one that it replaces."""
        self.answer_join(JoinResponse(ErrorCode.REBALANCE_IN_PROGRESS, self.member_id))
        self.protocols = join.protocols
        self.session_timeout = join.session_timeout
        self.rebalance_timeout = join.rebalance_timeout
        self.client_id, self.host = join.client_id, join.host
        self.joining = reply

    def metadata(self, protocol: str | None) -> bytes:
        """Return the member's metadata for a protocol."""
        return dict(self.protocols).get(protocol or "", b"")

    def synced(self, protocol_type: str, protocol: str | None) -> SyncResponse:
        """Return the response to a sync, with the member's assignment."""
        return SyncResponse(ErrorCode.NONE, self.assignment, protocol_type, protocol)

    def answer_join(self, joined: JoinResponse) -> None:
        """Answer the waiting join, if there is one."""
        reply, self.joining = self.joining, None
        if reply is not None:
            reply(joined)

    def answer_sync(self, synced: SyncResponse) -> None:
        """Answer the waiting sync, if there is one."""
        reply, self.syncing = self.syncing, None
        if reply is not None:
            reply(synced)


def subscribed_topics(members: Iterable[ClassicGroupMember]) -> set[str] | None:
    """Return the topics to which consumers are subscribed; None if a member does not say."""
    found: set[str] = set()
    try:
        for member in members:
            for _, metadata in member.protocols:
                found |= subscribed_names(metadata)
    except ValueError:
        return None
    return found


def common_protocols(members: Iterable[ClassicGroupMember]) -> set[str]:
    """Return the protocols that all members support; there must be a member."""
    return set.intersection(*({name for name, _ in member.protocols} for member in members))


def choose_protocol(members: Collection[ClassicGroupMember]) -> str:
    """Return the protocol that all members support and most of them prefer."""
    common = common_protocols(members)
    votes: dict[str, int] = {}
    for member in members:
        preferred = next(name for name, _ in member.protocols if name in common)
        votes[preferred] = votes.get(preferred, 0) + 1
    return max(votes, key=votes.__getitem__)
