"""The topics, subjects, and groups that a principal may see, by the grants of registry and broker.

Rules: as in the registry, `writer` and `admin` include `reader`. A principal that may read a topic
sees its tables, loads, and audit, too. An open console shows everything.
"""

from __future__ import annotations

from dataclasses import dataclass

from headworks._server.security import ANONYMOUS, ResourceType, Role
from headworks._server.security.http.permissions import EVERYTHING_ALLOWED, PrincipalPermissions


@dataclass(frozen=True, slots=True)
class Visibility:
    """The topics, groups, and subjects that a principal may see."""

    permission: PrincipalPermissions

    @property
    def name(self) -> str | None:
        """The principal's name, or None for an anonymous client."""
        principal = self.permission.principal
        return None if principal == ANONYMOUS else principal.name

    def topic(self, name: str) -> bool:
        """Return whether a topic is visible, with its messages, audit, and table."""
        return self.permission.may_read(ResourceType.TOPICS, name)

    def group(self, name: str) -> bool:
        """Return whether a consumer group is visible."""
        return self.permission.may_read(ResourceType.GROUPS, name)

    def subject(self, name: str) -> bool:
        """Return whether a subject is visible, with its schemas."""
        return self.permission.may(Role.READER, name)

    def may_redrive(self, topic: str) -> bool:
        """Return whether the principal may send dead letters back: only where users are known."""
        permission, resource = self.permission, ResourceType.TOPICS
        return permission.grants is not None and all(
            permission.has(role, topic, resource) for role in (Role.READER, Role.WRITER)
        )


ALL_VISIBLE = Visibility(EVERYTHING_ALLOWED)
