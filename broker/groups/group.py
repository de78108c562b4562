"""One group: its members, its generation, its state, and its leader.

    EMPTY ──join──▶ PREPARING ──all joined, or deadline────▶ COMPLETING ──leader's sync──▶ STABLE
      ▲                 ▲                                         │                          │
      └──last one gone──┴────────── join, leave, silence ─────────┴──────────────────────────┘

Rules:

- Nothing here reads a clock or waits. Every call gets the time, and `next_deadline` returns when
  `tick` must be called.
- Every join and sync is answered exactly once, through its callback.
- A member is removed when its session times out, unless its join or sync still waits for an answer.
- A static member, which has an instance id, keeps its place when it joins again. Its earlier member
  id is fenced.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from headworks._broker.groups.members import (
    ClassicGroupMember,
    JoinCallback,
    JoinRequest,
    JoinResponse,
    RebalanceState,
    SyncCallback,
    SyncResponse,
    choose_protocol,
    common_protocols,
)
from headworks._kafka.error_codes import ErrorCode


class ClassicGroup:
    """The state machine of a group. `new_id` makes a member id from a client id."""

    def __init__(self, name: str, new_id: Callable[[str], str], initial_delay: float) -> None:
        self.name = name  # the group id
        self.state = RebalanceState.EMPTY  # see the drawing above
        self.generation = 0  # grows with every rebalance
        self.protocol_type = ""  # "consumer", for all members
        self.protocol: str | None = None  # the assignor that this generation uses
        self.leader = ""  # id of the member that computes the assignments
        self.members: dict[str, ClassicGroupMember] = {}  # by member id
        self._new_id = new_id  # makes a member id from a client id
        self._initial_delay = initial_delay  # seconds that the first rebalance waits for others
        self._pending: dict[str, float] = {}  # ids given out but not used yet, with their deadline
        self._instances: dict[str, str] = {}  # member ids by instance id
        self._deadline: float | None = None  # when the rebalance ends without the missing members
        self._initial_rebalance = False  # whether it is the first one, which waits out its delay

    @property
    def idle(self) -> bool:
        """Whether the group has no members, and none that has just got its id."""
        return not self.members and not self._pending

    @property
    def member_count(self) -> int:
        """The number of members, with those that have just got their id."""
        return len(self.members) + len(self._pending)

    @property
    def size(self) -> int:
        """Bytes of memory that the fields of its members take."""
        return sum(m.size for m in self.members.values()) + sum(map(len, self._pending))

    def unload(self, error: ErrorCode = ErrorCode.NOT_COORDINATOR) -> None:
        """Remove all members, and answer those that wait with `error`: the group has moved."""
        members, self.members = self.members, {}
        self._pending.clear()
        self._instances.clear()
        self._become_empty()
        for member in members.values():
            member.answer_join(JoinResponse(error, member.member_id))
            member.answer_sync(SyncResponse(error))

    def take_over(self, now: float, members: Iterable[ClassicGroupMember], epoch: int) -> None:
        """Begin with consumers of a group of the other protocol, who must all join again."""
        for member in members:
            self.members[member.member_id] = member
            if member.instance_id is not None:
                self._instances[member.instance_id] = member.member_id
        self.generation, self.protocol_type = epoch, "consumer"
        self.state = RebalanceState.STABLE
        self._rebalance(now)

    # -- requests ----------------------------------------------------------------------------

    def join(self, now: float, join: JoinRequest, reply: JoinCallback) -> None:
        """Handle JoinGroup: a member joins, or asks for a rebalance."""
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
        """Handle SyncGroup: a member asks for its assignment; the leader brings those of all."""
        error = self.member_error(member_id, instance_id, generation)
        if not error and (
            protocol_type not in (None, self.protocol_type) or protocol not in (None, self.protocol)
        ):
            error = ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        if not error and self.state is RebalanceState.PREPARING:
            error = ErrorCode.REBALANCE_IN_PROGRESS
        if error:
            reply(SyncResponse(error))
            return
        member = self.members[member_id]
        member.deadline = now + member.session_timeout
        if self.state is RebalanceState.STABLE:
            reply(member.synced(self.protocol_type, self.protocol))
            return
        member.answer_sync(SyncResponse(ErrorCode.REBALANCE_IN_PROGRESS))
        member.syncing = reply
        if member_id == self.leader:
            self.state, self._deadline = RebalanceState.STABLE, None
            for other in self.members.values():
                other.assignment = assignments.get(other.member_id, b"")
                if other.syncing is not None:
                    other.deadline = now + other.session_timeout
                other.answer_sync(other.synced(self.protocol_type, self.protocol))

    def heartbeat(
        self, now: float, member_id: str, instance_id: str | None, generation: int
    ) -> ErrorCode:
        """Handle Heartbeat."""
        error = self.member_error(member_id, instance_id, generation)
        if error:
            return error
        member = self.members[member_id]
        member.deadline = now + member.session_timeout
        if self.state is RebalanceState.PREPARING:
            return ErrorCode.REBALANCE_IN_PROGRESS
        return ErrorCode.NONE

    def leave(self, now: float, member_id: str, instance_id: str | None) -> ErrorCode:
        """Handle LeaveGroup. A static member may be named by its instance id alone."""
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
        """Return the error of an offset commit. A valid one also counts as a heartbeat."""
        if generation < 0 and not self.members:
            return ErrorCode.NONE  # a consumer that assigns itself, and only stores offsets
        error = self.member_error(member_id, instance_id, generation)
        if error:
            return error
        if self.state is RebalanceState.COMPLETING:
            return ErrorCode.REBALANCE_IN_PROGRESS
        member = self.members[member_id]
        member.deadline = now + member.session_timeout
        return ErrorCode.NONE

    def member_error(self, member_id: str, instance_id: str | None, generation: int) -> ErrorCode:
        """Return the error if this is no member of the current generation."""
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
        """Return when `tick` must be called next, None if never."""
        deadlines = [m.deadline for m in self.members.values() if not m.waiting]
        deadlines += self._pending.values()
        if self._deadline is not None:
            deadlines.append(self._deadline)
        return min(deadlines, default=None)

    def tick(self, now: float) -> None:
        """Remove members whose session has timed out, and end a rebalance at its deadline."""
        for member_id in [name for name, until in self._pending.items() if until <= now]:
            del self._pending[member_id]
        silent = [m for m in self.members.values() if m.deadline <= now and not m.waiting]
        for member in silent:
            self._remove(member.member_id)
        if silent:
            self._after_removal(now)
        if self._deadline is not None and self._deadline <= now:
            if self.state is RebalanceState.PREPARING:
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
        if others and (
            join.protocol_type != self.protocol_type or not names & common_protocols(others)
        ):
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
        self.members[member_id] = ClassicGroupMember.from_join(member_id, join, now, reply)
        self.protocol_type = join.protocol_type
        if join.instance_id is not None:
            self._instances[join.instance_id] = member_id
        self._rebalance(now)

    def _rejoin(
        self, now: float, member: ClassicGroupMember, join: JoinRequest, reply: JoinCallback
    ) -> None:
        same = member.protocols == join.protocols
        member.deadline = now + join.session_timeout
        settled = self.state is RebalanceState.COMPLETING or (
            self.state is RebalanceState.STABLE and member.member_id != self.leader
        )
        if same and settled:
            reply(self._joined(member))
            return
        member.rejoin(join, reply)
        self._rebalance(now)

    def _replace_static(
        self, now: float, old_id: str, member_id: str, join: JoinRequest, reply: JoinCallback
    ) -> None:
        """A static member joined again under a new id: it keeps its place and assignment."""
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
        member.rejoin(join, reply)
        if not (same and self.state is RebalanceState.STABLE):
            self._rebalance(now)
            return
        joined = self._joined(member)
        if leads and not join.may_skip_assignment:
            # an old client must not compute assignments again: name another member as leader
            joined = self._joined(member, leader=old_id, full=False)
        elif leads:
            joined = self._joined(member, skip=True)
        member.answer_join(joined)

    # -- rebalance ---------------------------------------------------------------------------

    def _rebalance(self, now: float) -> None:
        if self.state is not RebalanceState.PREPARING:
            self._initial_rebalance = self.state is RebalanceState.EMPTY
            for member in self.members.values():
                if member.syncing is not None:  # it was waiting for us: restart its session timeout
                    member.deadline = now + member.session_timeout
                member.answer_sync(SyncResponse(ErrorCode.REBALANCE_IN_PROGRESS))
            self.state = RebalanceState.PREPARING
            longest = max(member.rebalance_timeout for member in self.members.values())
            self._deadline = now + (self._initial_delay if self._initial_rebalance else longest)
        self._try_complete(now)

    def _try_complete(self, now: float) -> None:
        if self.state is not RebalanceState.PREPARING:
            return
        if self._initial_rebalance and self._deadline is not None and now < self._deadline:
            return
        if not self._pending and all(m.joining is not None for m in self.members.values()):
            self._complete(now)

    def _complete(self, now: float) -> None:
        """End the rebalance with the members that have joined."""
        for member in list(self.members.values()):
            if member.joining is None and member.instance_id is None:
                self._remove(member.member_id)
        self.generation += 1
        self._deadline = None
        if not self.members:
            self._become_empty()
            return
        self.state = RebalanceState.COMPLETING
        self._deadline = now + max(m.rebalance_timeout for m in self.members.values())
        self.protocol = choose_protocol(self.members.values())
        leader = self.members.get(self.leader)
        if leader is None or leader.joining is None:
            joined = [m.member_id for m in self.members.values() if m.joining is not None]
            self.leader = joined[0] if joined else next(iter(self.members))
        for member in self.members.values():
            if member.joining is not None:
                member.deadline = now + member.session_timeout
            member.answer_join(self._joined(member))

    def _drop_unsynced(self, now: float) -> None:
        """The assignments did not arrive in time: remove the members that sent no sync."""
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
        elif self.state is not RebalanceState.EMPTY:
            self.generation += 1
            self._become_empty()

    def _become_empty(self) -> None:
        self.state, self._deadline = RebalanceState.EMPTY, None
        self.protocol, self.leader = None, ""

    # -- responses ---------------------------------------------------------------------------

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
