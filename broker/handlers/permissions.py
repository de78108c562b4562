"""The decisions of one principal's grants: whether it may use an API on a topic or a group.

Rules: the roles that an API requires are in `api_table`. Handlers only call `Client.may_use_topic`
and its siblings. Decisions are remembered until the grants change. This module reads no socket, no
file, and no clock: `Access` provides the grants.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from headworks._server.security import Access, Principal, ResourceType, Role
from headworks.errors import UsageError

_MAX_DECISIONS = 10_000  # of a principal on one kind of resource


@dataclass(frozen=True, slots=True)
class RequiredRoles:
    """The roles that an API requires; if several are named, one of them is enough."""

    topic: tuple[Role, ...] = ()  # on each topic that the request names
    group: tuple[Role, ...] = ()  # on each consumer group that it names
    all_topics: tuple[Role, ...] = ()  # on every topic: to act on the broker as a whole
    any_topic: tuple[Role, ...] = ()  # on at least one topic


class BrokerPermissions:
    """The decisions for one principal, remembered until `forget`; `required` is by API key."""

    def __init__(
        self, access: Access, principal: Principal, required: Mapping[int, RequiredRoles]
    ) -> None:
        self._access = access
        self._principal = principal
        self._required = required
        # By API key; APIs that require the same roles share their decisions
        self._topics = self._by_api(ResourceType.TOPICS, lambda roles: roles.topic)
        self._groups = self._by_api(ResourceType.GROUPS, lambda roles: roles.group)
        self.version = 0  # how often the grants have changed

    def topic(self, api: int, name: str) -> bool:
        """Return whether a request of this API may name this topic."""
        return self._topics[api][name]

    def group(self, api: int, name: str) -> bool:
        """Return whether a request of this API may name this group."""
        return self._groups[api][name]

    def broker(self, api: int) -> bool:
        """Return whether the API may be used on the broker as a whole."""
        required, access, principal = self._required[api], self._access, self._principal
        try:
            if required.all_topics:
                return any(
                    access.allows_everywhere(principal, role, ResourceType.TOPICS)
                    for role in required.all_topics
                )
            return any(
                access.allows_somewhere(principal, role, ResourceType.TOPICS)
                for role in required.any_topic
            )
        except UsageError:
            return False

    def forget(self) -> None:
        """Forget all decisions, because the grants have changed."""
        self.version += 1
        for decisions in (*self._topics.values(), *self._groups.values()):
            decisions.clear()

    def _by_api(
        self, kind: ResourceType, roles_of: Callable[[RequiredRoles], tuple[Role, ...]]
    ) -> dict[int, _Decisions]:
        by_roles: dict[tuple[Role, ...], _Decisions] = {}
        by_api = {}
        for api, required in self._required.items():
            roles = roles_of(required)
            if roles:
                decisions = _Decisions(self._access, self._principal, kind, roles)
                by_api[api] = by_roles.setdefault(roles, decisions)
        return by_api


class _Decisions(dict[str, bool]):
    """Decisions by name, made on first use. If the grants cannot be read, the answer is no."""

    def __init__(
        self, access: Access, principal: Principal, kind: ResourceType, roles: tuple[Role, ...]
    ) -> None:
        super().__init__()
        self._question = (access, principal, kind, roles)

    def __missing__(self, name: str) -> bool:
        access, principal, kind, roles = self._question
        try:
            allowed = any(access.allows(principal, role, kind, name) for role in roles)
        except UsageError:
            allowed = False
        if len(self) >= _MAX_DECISIONS:
            self.clear()
        self[name] = allowed
        return allowed
