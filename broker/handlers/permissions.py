"""What each API needs, and whether a principal has it: the one place that decides.

Rules: every served API has a rule; `RULES` is the whole of authorisation, and handlers only ask
`Client.may_topic` and its like. Decisions are remembered until the grants change. No sockets, no
files, no clock: `Access` brings the grants.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from headworks._kafka.protocol.apis import (
    API_VERSIONS,
    FETCH,
    PRODUCE,
    SASL_AUTHENTICATE,
    SASL_HANDSHAKE,
)
from headworks._server.security import Access, Principal, ResourceType, Role
from headworks.errors import UsageError

__all__ = ["RULES", "Permissions", "Rule"]

_MOST_REMEMBERED = 10_000  # decisions of a principal on one kind of thing

_READ = (Role.READER,)
_WRITE = (Role.WRITER,)
_SEE = (Role.READER, Role.WRITER)
_MANAGE = (Role.ADMIN,)


@dataclass(frozen=True, slots=True)
class Rule:
    """What an API needs; where several roles are named, one of them is enough."""

    topic: tuple[Role, ...] = ()  # on each topic that the request is about
    group: tuple[Role, ...] = ()  # on each consumer group that it is about
    all_topics: tuple[Role, ...] = ()  # on every topic there may be: for the broker as a whole
    any_topic: tuple[Role, ...] = ()  # on some topic, whichever
    before_login: bool = False


RULES: Mapping[int, Rule] = {
    PRODUCE: Rule(topic=_WRITE),
    FETCH: Rule(topic=_READ),
    2: Rule(topic=_READ),  # ListOffsets
    3: Rule(topic=_SEE),  # Metadata; who may produce to a topic may create it by that
    8: Rule(topic=_READ, group=_READ),  # OffsetCommit
    9: Rule(topic=_READ, group=_READ),  # OffsetFetch
    10: Rule(group=_READ),  # FindCoordinator
    11: Rule(group=_READ),  # JoinGroup
    12: Rule(group=_READ),  # Heartbeat
    13: Rule(group=_READ),  # LeaveGroup
    14: Rule(group=_READ),  # SyncGroup
    15: Rule(group=_READ),  # DescribeGroups
    16: Rule(group=_READ),  # ListGroups
    SASL_HANDSHAKE: Rule(before_login=True),
    API_VERSIONS: Rule(before_login=True),
    19: Rule(topic=_MANAGE),  # CreateTopics
    20: Rule(topic=_MANAGE),  # DeleteTopics
    21: Rule(topic=_MANAGE),  # DeleteRecords
    22: Rule(any_topic=_WRITE),  # InitProducerId
    23: Rule(topic=_READ),  # OffsetForLeaderEpoch
    32: Rule(topic=_SEE, all_topics=_MANAGE),  # DescribeConfigs: of topics; of the broker
    33: Rule(topic=_MANAGE),  # AlterConfigs
    35: Rule(all_topics=_MANAGE),  # DescribeLogDirs
    SASL_AUTHENTICATE: Rule(before_login=True),
    37: Rule(topic=_MANAGE),  # CreatePartitions
    42: Rule(group=_MANAGE),  # DeleteGroups
    44: Rule(topic=_MANAGE),  # IncrementalAlterConfigs
    47: Rule(topic=_READ, group=_MANAGE),  # OffsetDelete
    60: Rule(),  # DescribeCluster: addresses that whoever is here knows already
}


class Permissions:
    """What one principal may do by the grants; remembered until `forget`."""

    def __init__(self, access: Access, principal: Principal) -> None:
        self._access = access
        self._principal = principal
        self._topics = self._by_api(ResourceType.TOPICS, lambda rule: rule.topic)
        self._groups = self._by_api(ResourceType.GROUPS, lambda rule: rule.group)
        self.version = 0

    def topic(self, api: int, name: str) -> bool:
        """Whether a request of this API may be about this topic."""
        return self._topics[api][name]

    def group(self, api: int, name: str) -> bool:
        """Whether a request of this API may be about this group."""
        return self._groups[api][name]

    def broker(self, api: int) -> bool:
        """Whether the API may be used at all, where that does not depend on a topic or a group."""
        rule, access, me = RULES[api], self._access, self._principal
        try:
            if rule.all_topics:
                return any(
                    access.allows_everywhere(me, role, ResourceType.TOPICS)
                    for role in rule.all_topics
                )
            return any(
                access.allows_somewhere(me, role, ResourceType.TOPICS) for role in rule.any_topic
            )
        except UsageError:
            return False

    def forget(self) -> None:
        """The grants have changed."""
        self.version += 1
        for decisions in (*self._topics.values(), *self._groups.values()):
            decisions.clear()

    def _by_api(
        self, kind: ResourceType, roles_of: Callable[[Rule], tuple[Role, ...]]
    ) -> dict[int, _Decisions]:
        by_roles: dict[tuple[Role, ...], _Decisions] = {}
        by_api = {}
        for api, rule in RULES.items():
            roles = roles_of(rule)
            if roles:
                decisions = _Decisions(self._access, self._principal, kind, roles)
                by_api[api] = by_roles.setdefault(roles, decisions)
        return by_api


class _Decisions(dict[str, bool]):
    """Decisions by name, made when they are first asked for; grants that cannot be read refuse."""

    def __init__(
        self, access: Access, principal: Principal, kind: ResourceType, roles: tuple[Role, ...]
    ) -> None:
        super().__init__()
        self._ask = (access, principal, kind, roles)

    def __missing__(self, name: str) -> bool:
        access, principal, kind, roles = self._ask
        try:
            allowed = any(access.allows(principal, role, kind, name) for role in roles)
        except UsageError:
            allowed = False
        if len(self) >= _MOST_REMEMBERED:
            self.clear()
        self[name] = allowed
        return allowed
