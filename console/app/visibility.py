"""What one principal may see: topics, subjects and groups, by the registry's and broker's grants.

Rules: as in the registry, `writer` and `admin` include `reader`; the tables, loads and the audit of
a topic are seen by who may read the topic; an open console shows everything.
"""

from __future__ import annotations

from dataclasses import dataclass

from headworks._server.security import ANONYMOUS, ResourceType, Role
from headworks._server.security.http.permissions import EVERYTHING_ALLOWED, Permissions

__all__ = ["ALL_VISIBLE", "Visibility"]


@dataclass(frozen=True, slots=True)
class Visibility:
    """What who holds the permission may see."""

    permission: Permissions

    @property
    def name(self) -> str | None:
        """Who it is; None for who did not say."""
        principal = self.permission.principal
        return None if principal == ANONYMOUS else principal.name

    def topic(self, name: str) -> bool:
        """Whether a topic may be seen, with its messages, audit and table."""
        return self.permission.may_read(ResourceType.TOPICS, name)

    def group(self, name: str) -> bool:
        """Whether a consumer group may be seen."""
        return self.permission.may_read(ResourceType.GROUPS, name)

    def subject(self, name: str) -> bool:
        """Whether a subject may be seen, with its schemas."""
        return self.permission.may(Role.READER, name)


ALL_VISIBLE = Visibility(EVERYTHING_ALLOWED)
