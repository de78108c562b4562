"""One group: who is in it, which generation it is in, and who leads.

    EMPTY ──join──▶ PREPARING ──all joined, or time is up──▶ COMPLETING ──leader's sync──▶ STABLE
      ▲                 ▲                                         │                          │
      └──last one gone──┴────────── join, leave, silence ─────────┴──────────────────────────┘

Rules:

- Nothing here reads a clock or waits: every call is told the time; `next_deadline` says when
  `tick` must be called.
- Every join and sync is answered exactly once, through the callback that came with it.
- A member is dropped when its session ends unless it waits for us (a parked join or sync).
- A static member (with an instance id) that comes back takes its old place, and the one that held
  the id before is fenced.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import Enum

from headworks._broker.groups.members import (
    ClassicGroupMember,
    JoinCallback,
    JoinRequest,
    JoinResponse,
    SyncCallback,
    SyncResponse,
)
from headworks._kafka.error_codes import ErrorCode

__all__ = ["ClassicGroup", "ClassicGroupState"]


class ClassicGroupState(Enum):
    """The states, by the names that clients see."""

    EMPTY = "Empty"
    PREPARING = "PreparingRebalance"
    COMPLETING = "CompletingRebalance"
    STABLE = "Stable"


class ClassicGroup:
    """The state machine. `new_id` makes a member id from a client id."""

    def __init__(self, name: str, new_id: Callable[[str], str], initial_delay: float) -> None:
        self.name = name
        self.state = ClassicGroupState.EMPTY
        self.generation = 0
        self.protocol_type = ""
        self.protocol: str | None = None
        self.leader = ""
        self.members: dict[str, ClassicGroupMember] = {}
        self._new_id = new_id
        self._initial_delay = initial_delay
        self._pending: dict[str, float] = {}  # ids given out, not used yet: until when
        self._instances: dict[str, str] = {}
        self._deadline: float | None = None  # when the rebalance is ended as it is
        self._initial_rebalance = (
            False  # the first rebalance waits out its delay, for others to come
        )

    @property
    def idle(self) -> bool:
        """Whether nobody is in the group or about to be."""
        return not self.members and not self._pending

    @property
    def member_count(self) -> int:
        """How many are in the group or about to be."""
        return len(self.members) + len(self._pending)

    @property
    def size(self) -> int:
        """Bytes that its members' words take."""
        return sum(m.size for m in self.members.values()) + sum(map(len, self._pending))

    def unload(self) -> None:
        """It is coordinated elsewhere from now on: tell who waits, and forget everybody."""
        members, self.members = self.members, {}
        self._pending.clear()
        self._instances.clear()
        self.leader, self.protocol, self._deadline = "", None, None
        self.state = ClassicGroupState.EMPTY
        for member in members.values():
            member.answer_join(JoinResponse(ErrorCode.NOT_COORDINATOR, member.member_id))
            member.answer_sync(SyncResponse(ErrorCode.NOT_COORDINATOR))

    # -- requests ----------------------------------------------------------------------------

    def join(self, now: float, join: JoinRequest, reply: JoinCallback) -> None:
        """A member wants in, or wants a rebalance."""
        error = self._join_error(join)
        if error:
            reply(JoinResponse(error, join.member_id))
        elif not join.member_id:
            self._join_new(now, join, reply)
        elif self._pending.pop(join.member_id, None) is not None:
            self._add(now, join, join.member_id, reply)
        else:
            self._rejoin(now, self.members[join.member_id], join, reply)

    def sync(
        self,
        now: float,
        member_id: str,
        instance_id: str | None,
        generation: int,
        assignments: Mapping[str, bytes],
        reply: SyncCallback,
        *,
        protocol_type: str | None = None,
        protocol: str | None = None,
    ) -> None:
        """A member wants its assignment; the leader brings everybody's."""
        error = self.member_error(member_id, instance_id, generation)
        if not error and (
            protocol_type not in (None, self.protocol_type) or protocol not in (None, self.protocol)
        ):
            error = ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        if not error and self.state is ClassicGroupState.PREPARING:
            error = ErrorCode.REBALANCE_IN_PROGRESS
        if error:
            reply(SyncResponse(error))
            return
        member = self.members[member_id]
        member.deadline = now + member.session_timeout
        if self.state is ClassicGroupState.STABLE:
            reply(self._synced(member))
            return
        member.answer_sync(SyncResponse(ErrorCode.REBALANCE_IN_PROGRESS))
        member.syncing = reply
        if member_id == self.leader:
            self.state, self._deadline = ClassicGroupState.STABLE, None
            for other in self.members.values():
                other.assignment = assignments.get(other.member_id, b"")
                if other.syncing is not None:
                    other.deadline = now + other.session_timeout
                other.answer_sync(self._synced(other))

    def heartbeat(
        self, now: float, member_id: str, instance_id: str | None, generation: int
    ) -> ErrorCode:
        """A member is alive."""
        error = self.member_error(member_id, instance_id, generation)
        if error:
            return error
        member = self.members[member_id]
        member.deadline = now + member.session_timeout
        if self.state is ClassicGroupState.PREPARING:
            return ErrorCode.REBALANCE_IN_PROGRESS
        return ErrorCode.NONE

    def leave(self, now: float, member_id: str, instance_id: str | None) -> ErrorCode:
        """A member goes; a static one may be named by its instance id alone."""
        if instance_id is not None:
            owner = self._instances.get(instance_id)
            if owner is None:
                return ErrorCode.UNKNOWN_MEMBER_ID
            if member_id not in ("", owner):
                return ErrorCode.FENCED_INSTANCE_ID
            member_id = owner
        if self._pending.pop(member_id, None) is not None:
            self._try_complete(now)
            return ErrorCode.NONE
        if member_id not in self.members:
            return ErrorCode.UNKNOWN_MEMBER_ID
        self._remove(member_id)
        self._after_removal(now)
        return ErrorCode.NONE

    def commit_error(
        self, now: float, member_id: str, instance_id: str | None, generation: int
    ) -> ErrorCode:
        """Whether a commit of offsets may be taken; it also shows that the member is alive."""
        if generation < 0 and not self.members:
            return ErrorCode.NONE  # not a member: a simple consumer that only stores offsets
        error = self.member_error(member_id, instance_id, generation)
        if error:
            return error
        if self.state is ClassicGroupState.COMPLETING:
            return ErrorCode.REBALANCE_IN_PROGRESS
        member = self.members[member_id]
        member.deadline = now + member.session_timeout
        return ErrorCode.NONE

    def member_error(self, member_id: str, instance_id: str | None, generation: int) -> ErrorCode:
        """Whether somebody is a member of this generation."""
        if instance_id is not None and instance_id in self._instances:
            if self._instances[instance_id] != member_id:
                return ErrorCode.FENCED_INSTANCE_ID
        elif instance_id is not None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        if member_id not in self.members:
            return ErrorCode.UNKNOWN_MEMBER_ID
        if generation != self.generation:
            return ErrorCode.ILLEGAL_GENERATION
        return ErrorCode.NONE

    # -- time --------------------------------------------------------------------------------

    def next_deadline(self) -> float | None:
        """When `tick` must be called next, if ever."""
        deadlines = [m.deadline for m in self.members.values() if not _is_waiting(m)]
        deadlines += self._pending.values()
        if self._deadline is not None:
            deadlines.append(self._deadline)
        return min(deadlines, default=None)

    def tick(self, now: float) -> None:
        """End what has run out of time."""
        for member_id in [name for name, until in self._pending.items() if until <= now]:
            del self._pending[member_id]
        silent = [m for m in self.members.values() if m.deadline <= now and not _is_waiting(m)]
        for member in silent:
            self._remove(member.member_id)
        if silent:
            self._after_removal(now)
        if self._deadline is not None and self._deadline <= now:
            if self.state is ClassicGroupState.PREPARING:
                self._complete(now)
            else:
                self._drop_unsynced(now)
        else:
            self._try_complete(now)

    # -- joining -----------------------------------------------------------------------------

    def _join_error(self, join: JoinRequest) -> ErrorCode:
        names = {name for name, _ in join.protocols}
        if not join.protocol_type or not names:
            return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        others = [m for m in self.members.values() if m.member_id != join.member_id]
        if others:
            common = set.intersection(*({n for n, _ in m.protocols} for m in others))
            if join.protocol_type != self.protocol_type or not names & common:
                return ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        if join.member_id:
            owner = self._instances.get(join.instance_id or "")
            if owner is not None and owner != join.member_id:
                return ErrorCode.FENCED_INSTANCE_ID
            if join.member_id not in self.members and join.member_id not in self._pending:
                return ErrorCode.UNKNOWN_MEMBER_ID
        return ErrorCode.NONE

    def _join_new(self, now: float, join: JoinRequest, reply: JoinCallback) -> None:
        member_id = self._new_id(join.instance_id or join.client_id)
        owner = self._instances.get(join.instance_id or "")
        if owner is not None:
            self._replace_static(now, owner, member_id, join, reply)
        elif join.needs_id and join.instance_id is None:
            self._pending[member_id] = now + join.session_timeout
            reply(JoinResponse(ErrorCode.MEMBER_ID_REQUIRED, member_id))
        else:
            self._add(now, join, member_id, reply)

    def _add(self, now: float, join: JoinRequest, member_id: str, reply: JoinCallback) -> None:
        member = ClassicGroupMember(
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
        self.members[member_id] = member
        self.protocol_type = join.protocol_type
        if join.instance_id is not None:
            self._instances[join.instance_id] = member_id
        self._rebalance(now)

    def _rejoin(
        self, now: float, member: ClassicGroupMember, join: JoinRequest, reply: JoinCallback
    ) -> None:
        same = member.protocols == join.protocols
        member.deadline = now + join.session_timeout
        calm = self.state is ClassicGroupState.COMPLETING or (
            self.state is ClassicGroupState.STABLE and member.member_id != self.leader
        )
        if same and calm:
            reply(self._joined(member))
            return
        self._update(member, join, reply)
        self._rebalance(now)

    def _replace_static(
        self, now: float, old_id: str, member_id: str, join: JoinRequest, reply: JoinCallback
    ) -> None:
        """A static member came back under a new id: it takes over place and assignment."""
        member = self.members.pop(old_id)
        member.answer_join(JoinResponse(ErrorCode.FENCED_INSTANCE_ID, old_id))
        member.answer_sync(SyncResponse(ErrorCode.FENCED_INSTANCE_ID))
        same = member.protocols == join.protocols
        member.member_id = member_id
        member.deadline = now + join.session_timeout
        self.members[member_id] = member
        self._instances[join.instance_id or ""] = member_id
        leads = self.leader == old_id
        if leads:
            self.leader = member_id
        self._update(member, join, reply)
        if not (same and self.state is ClassicGroupState.STABLE):
            self._rebalance(now)
            return
        joined = self._joined(member)
        if leads and not join.may_skip_assignment:
            # an old client must not think that it has to assign again: it is told of another leader
            joined = self._joined(member, leader=old_id, full=False)
        elif leads:
            joined = self._joined(member, skip=True)
        member.answer_join(joined)

    @staticmethod
    def _update(member: ClassicGroupMember, join: JoinRequest, reply: JoinCallback) -> None:
        member.answer_join(JoinResponse(ErrorCode.REBALANCE_IN_PROGRESS, member.member_id))
        member.protocols = join.protocols
        member.session_timeout = join.session_timeout
        member.rebalance_timeout = join.rebalance_timeout
        member.client_id, member.host = join.client_id, join.host
        member.joining = reply

    # -- rebalance ---------------------------------------------------------------------------

    def _rebalance(self, now: float) -> None:
        if self.state is not ClassicGroupState.PREPARING:
            self._initial_rebalance = self.state is ClassicGroupState.EMPTY
            for member in self.members.values():
                if member.syncing is not None:  # it was kept waiting: its session starts anew
                    member.deadline = now + member.session_timeout
                member.answer_sync(SyncResponse(ErrorCode.REBALANCE_IN_PROGRESS))
            self.state = ClassicGroupState.PREPARING
            longest = max(member.rebalance_timeout for member in self.members.values())
            self._deadline = now + (self._initial_delay if self._initial_rebalance else longest)
        self._try_complete(now)

    def _try_complete(self, now: float) -> None:
        if self.state is not ClassicGroupState.PREPARING:
            return
        if self._initial_rebalance and self._deadline is not None and now < self._deadline:
            return
        if not self._pending and all(m.joining is not None for m in self.members.values()):
            self._complete(now)

    def _complete(self, now: float) -> None:
        """End the rebalance with those who came."""
        for member in list(self.members.values()):
            if member.joining is None and member.instance_id is None:
                self._remove(member.member_id)
        self.generation += 1
        self._deadline = None
        if not self.members:
            self._become_empty()
            return
        self.state = ClassicGroupState.COMPLETING
        self._deadline = now + max(m.rebalance_timeout for m in self.members.values())
        self.protocol = self._choose_protocol()
        leader = self.members.get(self.leader)
        if leader is None or leader.joining is None:
            came = [m.member_id for m in self.members.values() if m.joining is not None]
            self.leader = came[0] if came else next(iter(self.members))
        for member in self.members.values():
            if member.joining is not None:
                member.deadline = now + member.session_timeout
            member.answer_join(self._joined(member))

    def _choose_protocol(self) -> str:
        """The protocol that all can and most like best."""
        members = list(self.members.values())
        common = set.intersection(*({name for name, _ in m.protocols} for m in members))
        votes: dict[str, int] = {}
        for member in members:
            liked = next(name for name, _ in member.protocols if name in common)
            votes[liked] = votes.get(liked, 0) + 1
        return max(votes, key=votes.__getitem__)

    def _drop_unsynced(self, now: float) -> None:
        """The assignment did not come in time: whoever has not asked for it is dropped."""
        self._deadline = None
        for member in list(self.members.values()):
            if member.syncing is None:
                self._remove(member.member_id)
        self._after_removal(now)

    def _remove(self, member_id: str) -> None:
        member = self.members.pop(member_id)
        if member.instance_id is not None:
            self._instances.pop(member.instance_id, None)
        member.answer_join(JoinResponse(ErrorCode.UNKNOWN_MEMBER_ID, member_id))
        member.answer_sync(SyncResponse(ErrorCode.UNKNOWN_MEMBER_ID))

    def _after_removal(self, now: float) -> None:
        if self.members:
            self._rebalance(now)
        elif self.state is not ClassicGroupState.EMPTY:
            self.generation += 1
            self._become_empty()

    def _become_empty(self) -> None:
        self.state, self._deadline = ClassicGroupState.EMPTY, None
        self.protocol, self.leader = None, ""

    # -- answers -----------------------------------------------------------------------------

    def _joined(
        self,
        member: ClassicGroupMember,
        *,
        leader: str | None = None,
        full: bool = True,
        skip: bool = False,
    ) -> JoinResponse:
        leads = full and member.member_id == self.leader
        return JoinResponse(
            ErrorCode.NONE,
            member.member_id,
            self.generation,
            self.protocol_type,
            self.protocol,
            self.leader if leader is None else leader,
            skip,
            [
                (other.member_id, other.instance_id, other.metadata(self.protocol))
                for other in self.members.values()
            ]
            if leads
            else (),
        )

    def _synced(self, member: ClassicGroupMember) -> SyncResponse:
        return SyncResponse(ErrorCode.NONE, member.assignment, self.protocol_type, self.protocol)


def _is_waiting(member: ClassicGroupMember) -> bool:
    return member.joining is not None or member.syncing is not None
