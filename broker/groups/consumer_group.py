"""A group of the consumer protocol (KIP-848): the broker assigns, and each member reconciles alone.

A change of members, subscriptions, or topics bumps the epoch of the group. The next heartbeat then
computes the target assignment of that epoch. Each member moves to it by its own heartbeats:

    STABLE ──target takes partitions away──▶ UNREVOKED ──they are confirmed as revoked─┐
      │ ▲                                                                              │
      │ └──────────all others have released what it gets───────── UNRELEASED ◀─────────┤
      └───────────────────▲────────────────────────────────────────────────────────────┘

Rules:

- Nothing here reads a clock or waits. Every call gets the time, and `next_deadline` returns when
  `tick` must be called.
- A partition has at most one owner. It is free when its owner confirms that it stopped reading it,
  leaves, or is removed because it was silent for too long.
- A member of another epoch than the group gave it is fenced: it owns nothing, and joins again.
- A static member, which has an instance id, keeps its partitions while it is away, until its
  session times out.
- Members of the classic protocol may be among them (see `mixed_group`).
"""

from __future__ import annotations

from collections import Counter

from headworks._broker.groups.assignors import (
    ASSIGNORS,
    DEFAULT_ASSIGNOR,
    AssignorInput,
    OwnedPartition,
)
from headworks._broker.groups.consumer_members import (
    JOINING_EPOCH,
    LEAVING_EPOCH,
    NOTHING,
    PAUSING_EPOCH,
    ConsumerAnswer,
    ConsumerGroupMember,
    ConsumerGroupState,
    ConsumerGroupTimes,
    ConsumerHeartbeat,
    MemberState,
    SubscribableTopics,
    refused_heartbeat,
)
from headworks._broker.groups.subscriptions import GroupSubscriptions
from headworks._kafka.error_codes import ErrorCode

_MAX_AT_ONCE = 500  # partitions; the target of more is not computed for every change
_PAUSE_SECONDS = 0.0001  # after a target was computed, for each of its partitions


class ConsumerGroup:
    """The state machine of a group, which assigns nothing before `assigns_from`."""

    protocol_type = "consumer"

    def __init__(self, name: str, times: ConsumerGroupTimes, assigns_from: float = 0.0) -> None:
        self.name = name  # the group id
        self.times = times  # how long members may be silent
        self.epoch = 1 if assigns_from else 0  # grows with all that the assignment depends on
        self.target_epoch = self.epoch  # the epoch of the target assignment
        self.target: dict[str, frozenset[OwnedPartition]] = {}  # by member id
        self.assignor = DEFAULT_ASSIGNOR  # of the target
        self.members: dict[str, ConsumerGroupMember] = {}  # by member id
        self.revision = 0  # grows with every change that deadlines or sizes depend on
        self.owners: dict[OwnedPartition, str] = {}  # member ids
        self._instances: dict[str, str] = {}  # member ids by instance id
        self.subscriptions = GroupSubscriptions()  # the topics that members ask for
        self._assigns_from = assigns_from  # when the next target may be computed

    @property
    def state(self) -> ConsumerGroupState:
        """The state that clients see."""
        if not self.members:
            return ConsumerGroupState.EMPTY
        if self.epoch > self.target_epoch:
            return ConsumerGroupState.ASSIGNING
        settled = all(
            member.state is MemberState.STABLE and member.epoch == self.target_epoch
            for member in self.members.values()
            if member.epoch != PAUSING_EPOCH
        )
        return ConsumerGroupState.STABLE if settled else ConsumerGroupState.RECONCILING

    @property
    def idle(self) -> bool:
        """Whether the group has no members."""
        return not self.members

    @property
    def member_count(self) -> int:
        """The number of members."""
        return len(self.members)

    @property
    def size(self) -> int:
        """Bytes of memory that the fields of its members take."""
        return sum(member.size for member in self.members.values())

    def subscribed_topics(self) -> set[str]:
        """Return the names to which members subscribe."""
        return self.subscriptions.names

    def unload(self) -> None:
        """Remove all members: the group has moved, and they join again at its coordinator."""
        for member_id in tuple(self.members):
            self.remove(member_id)

    # -- heartbeats --------------------------------------------------------------------------

    def heartbeat(
        self, now: float, beat: ConsumerHeartbeat, topics: SubscribableTopics
    ) -> ConsumerAnswer:
        """Handle ConsumerGroupHeartbeat."""
        if beat.epoch in (LEAVING_EPOCH, PAUSING_EPOCH):
            return self._leave(beat)
        if beat.epoch == JOINING_EPOCH:
            error = self._join_error(beat)
        else:
            error = self.member_error(beat.member_id, beat.instance_id) or self._epoch_error(beat)
        if error:
            return refused_heartbeat(error, beat)
        if beat.epoch == JOINING_EPOCH:
            self.enter(beat.member_id, beat.instance_id)
        member = self.members[beat.member_id]
        changed = self._update(member, beat)
        self.subscribe(now, member, topics, changed=changed)
        before = member.assigned
        self.reconcile(now, member, beat.owned, has_answer=not beat.is_full)
        if beat.owned is not None:
            member.reported = beat.owned
        member.deadline = now + self.times.session
        waits = member.state is MemberState.UNRELEASED or self.epoch > self.target_epoch
        return ConsumerAnswer(
            ErrorCode.NONE,
            None,
            member.member_id,
            member.epoch,
            self.times.waiting_interval if waits else self.times.interval,
            member.assigned if beat.is_full or member.assigned != before else None,
        )

    def member_error(self, member_id: str, instance_id: str | None) -> ErrorCode:
        """Return the error if this is no member, or if another one took over its instance id."""
        if instance_id is not None:
            owner = self._instances.get(instance_id)
            if owner is None:
                return ErrorCode.UNKNOWN_MEMBER_ID
            if owner != member_id:
                return ErrorCode.FENCED_INSTANCE_ID
        return ErrorCode.NONE if member_id in self.members else ErrorCode.UNKNOWN_MEMBER_ID

    def commit_error(self, member_id: str, epoch: int) -> ErrorCode:
        """Return the error of committing or fetching offsets as this member in this epoch."""
        if epoch < 0 and not self.members:
            return ErrorCode.NONE  # a tool
        member = self.members.get(member_id)
        if member is None:
            return ErrorCode.UNKNOWN_MEMBER_ID
        if epoch == member.epoch:
            return ErrorCode.NONE
        stale = member.classic is None
        return ErrorCode.STALE_MEMBER_EPOCH if stale else ErrorCode.ILLEGAL_GENERATION

    def _join_error(self, beat: ConsumerHeartbeat) -> ErrorCode:
        owner = self.members.get(self._instances.get(beat.instance_id or "", ""))
        if owner is None or owner.member_id == beat.member_id:
            return ErrorCode.NONE
        if owner.epoch == PAUSING_EPOCH or owner.classic is not None:
            return ErrorCode.NONE
        return ErrorCode.UNRELEASED_INSTANCE_ID

    def _epoch_error(self, beat: ConsumerHeartbeat) -> ErrorCode:
        """Fence a member of another epoch, unless it only missed the last answer."""
        member = self.members[beat.member_id]
        missed = beat.epoch == member.previous_epoch and (
            beat.owned is not None and beat.owned <= member.assigned
        )
        if beat.epoch == member.epoch or missed:
            return ErrorCode.NONE
        return ErrorCode.FENCED_MEMBER_EPOCH

    # -- members -----------------------------------------------------------------------------

    def enter(self, member_id: str, instance_id: str | None) -> ConsumerGroupMember:
        """Return a new member, or one that starts over.

        A static member takes the place of the one that had its instance id, with its partitions.
        """
        owner = self._instances.get(instance_id or "")
        member = self.members.get(member_id)
        if owner is not None and owner != member_id:
            member = self._rename(owner, member_id)
        elif member is None:
            member = self.members[member_id] = ConsumerGroupMember(member_id)
            self._bump()
        elif member.epoch != PAUSING_EPOCH:
            self._own(member, NOTHING, NOTHING)  # it says that it owns nothing
        member.instance_id = instance_id
        member.epoch = member.previous_epoch = 0
        member.state, member.act_by = MemberState.STABLE, None
        member.reported = NOTHING
        if instance_id is not None:
            self._instances[instance_id] = member_id
        return member

    def instance(self, instance_id: str) -> str | None:
        """Return the id of the member that has an instance id."""
        return self._instances.get(instance_id)

    def give(
        self, member: ConsumerGroupMember, partitions: frozenset[OwnedPartition], epoch: int
    ) -> None:
        """Let a member own what it owned in a classic group, at that epoch."""
        free = NOTHING | {one for one in partitions if one not in self.owners}
        self._own(member, free, NOTHING)
        self.target[member.member_id] = free
        member.epoch = member.previous_epoch = epoch

    def remove(self, member_id: str) -> None:
        """Remove a member; its partitions are free."""
        member = self.members.pop(member_id)
        self._own(member, NOTHING, NOTHING)
        self.target.pop(member_id, None)
        self.subscriptions.replace(member.subscription, frozenset())
        if member.instance_id is not None:
            self._instances.pop(member.instance_id, None)
        self._bump()

    def _rename(self, old_id: str, new_id: str) -> ConsumerGroupMember:
        member = self.members.pop(old_id)
        member.member_id = new_id
        self.members[new_id] = member
        self.target[new_id] = self.target.pop(old_id, NOTHING)
        for one in member.owned:
            self.owners[one] = new_id
        self._own(member, member.assigned, NOTHING)
        self.revision += 1
        return member

    def _leave(self, beat: ConsumerHeartbeat) -> ConsumerAnswer:
        error = self.member_error(beat.member_id, beat.instance_id)
        if error:
            return refused_heartbeat(error, beat)
        member = self.members[beat.member_id]
        if beat.epoch == PAUSING_EPOCH and member.instance_id is not None:
            self._own(member, member.assigned, NOTHING)
            member.epoch, member.act_by = PAUSING_EPOCH, None
            self.revision += 1
        else:
            self.remove(beat.member_id)
        return ConsumerAnswer(ErrorCode.NONE, None, beat.member_id, beat.epoch)

    def _update(self, member: ConsumerGroupMember, beat: ConsumerHeartbeat) -> bool:
        """Take over what the member sent; return whether the assignment depends on a change."""
        before = member.topic_names, member.regex, member.assignor, member.rack_id
        counted = member.subscription
        if beat.epoch == JOINING_EPOCH:
            member.regex, member.assignor, member.rack_id = None, None, None
            member.topic_names, member.classic = frozenset(), None
        if beat.topic_names is not None:
            member.topic_names = beat.topic_names
        if beat.regex is not None:
            member.regex = beat.regex or None
        if beat.assignor is not None:
            member.assignor = beat.assignor or None
        if beat.rack_id is not None:
            member.rack_id = beat.rack_id
        if beat.rebalance_timeout is not None:
            member.rebalance_timeout = beat.rebalance_timeout
        member.client_id, member.host = beat.client_id, beat.host
        if before == (member.topic_names, member.regex, member.assignor, member.rack_id):
            return False
        member.matched_at = -1
        self.subscriptions.replace(counted, member.subscription)
        return True

    def subscribe_by_names(self, member: ConsumerGroupMember, names: frozenset[str]) -> bool:
        """Replace the names to which a member subscribes; return whether they changed."""
        before = member.subscription
        member.topic_names = names
        self.subscriptions.replace(before, member.subscription)
        return before != member.subscription

    def subscribe(
        self,
        now: float,
        member: ConsumerGroupMember,
        topics: SubscribableTopics,
        *,
        changed: bool,
    ) -> None:
        """Follow the topics and the member's subscription, and compute a new target if needed.

        Members of a large group may join one after the other: one target serves many of them.
        """
        if member.matched_at != topics.version:
            counted = member.subscription
            member.matched = topics.matching(member.regex) if member.regex else frozenset()
            member.matched_at = topics.version
            if member.subscription != counted:
                self.subscriptions.replace(counted, member.subscription)
                changed = True
        if self.subscriptions.follow(topics) or changed:
            self._bump()
        if self.epoch > self.target_epoch and now >= self._assigns_from:
            self._assign()
            count = sum(map(len, self.target.values()))
            pause = count * _PAUSE_SECONDS if count > _MAX_AT_ONCE else 0.0
            self._assigns_from = now + pause

    def _bump(self) -> None:
        """Ask for a new target assignment, which the next heartbeat computes."""
        self.epoch = self.target_epoch + 1
        self.revision += 1

    # -- assignment --------------------------------------------------------------------------

    def _assign(self) -> None:
        votes = Counter(member.assignor or DEFAULT_ASSIGNOR for member in self.members.values())
        self.assignor = max(sorted(votes), key=votes.__getitem__)
        members = self.members.values()
        asked = AssignorInput(
            {m.member_id: self.subscriptions.ids(m.subscription) for m in members},
            self.subscriptions.sizes,
            self.target,
            {m.member_id: m.order for m in members},
        )
        self.target = ASSIGNORS[self.assignor](asked)
        self.target_epoch = self.epoch

    def reconcile(
        self,
        now: float,
        member: ConsumerGroupMember,
        owned: frozenset[OwnedPartition] | None,
        *,
        has_answer: bool,
    ) -> None:
        """Move a member towards its target; see `ConsumerGroupMember.has_revoked`."""
        if member.state is MemberState.UNREVOKED:
            if not (has_answer and member.has_revoked(owned)):
                return
            self._own(member, member.assigned, NOTHING)
        elif member.state is MemberState.STABLE and member.epoch == self.target_epoch:
            return
        wanted = self.target.get(member.member_id, NOTHING)
        kept = member.assigned & wanted
        revoking = member.assigned - kept
        if revoking and (member.classic is None or owned is None or owned & revoking):
            self._own(member, kept, revoking)
            member.state = MemberState.UNREVOKED
            member.act_by = now + member.rebalance_timeout
            self.revision += 1
            return
        mine = member.member_id
        free = {one for one in wanted - kept if self.owners.get(one, mine) == mine}
        self._own(member, kept | free, NOTHING)
        waits = len(kept) + len(free) < len(wanted)
        if member.act_by is not None:
            member.act_by = None
            self.revision += 1
        member.state = MemberState.UNRELEASED if waits else MemberState.STABLE
        member.move_to(self.target_epoch)

    def is_waiting_for_others(self, member: ConsumerGroupMember) -> bool:
        """Return whether others still own all that the member does not have yet."""
        missing = self.target.get(member.member_id, NOTHING) - member.assigned
        return all(one in self.owners for one in missing)

    def _own(
        self,
        member: ConsumerGroupMember,
        assigned: frozenset[OwnedPartition],
        revoking: frozenset[OwnedPartition],
    ) -> None:
        before = member.owned
        member.assigned, member.revoking = assigned, revoking
        for one in before - member.owned:
            del self.owners[one]
        for one in member.owned - before:
            self.owners[one] = member.member_id

    # -- time --------------------------------------------------------------------------------

    def next_deadline(self) -> float | None:
        """Return when `tick` must be called next, None if never."""
        deadlines = [member.deadline for member in self.members.values()]
        deadlines += [m.act_by for m in self.members.values() if m.act_by is not None]
        return min(deadlines, default=None)

    def tick(self, now: float) -> None:
        """Remove members that were silent for too long, or did not act in time."""
        for member in tuple(self.members.values()):
            late = member.act_by is not None and member.act_by <= now
            if late or member.deadline <= now:
                self.remove(member.member_id)
