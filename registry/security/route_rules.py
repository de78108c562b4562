"""The one table of the roles that routes require.

Rules:

- Every route of the application is in the table. If the registry authenticates, a route that is not
  in the table is refused to everyone. A test compares the table with the application.
- `writer` includes `reader`, and `admin` includes both.
- A rule on SOMEWHERE admits every principal that has the role for at least one name. The route then
  returns only what the principal may read.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Final

from headworks._server.security import Role


class RuleTarget(Enum):
    """The names for which the role must be granted."""

    SUBJECT = "the subject in the path"
    CONTEXT = "the context in the path"
    SOMEWHERE = "any name"
    EVERYWHERE = "all names"


@dataclass(frozen=True, slots=True)
class RouteRule:
    """The role that a route requires; None: the route needs no authentication."""

    role: Role | None
    on: RuleTarget = RuleTarget.SOMEWHERE

    @property
    def changes(self) -> bool:
        """Whether the route changes the registry."""
        return self.role in (Role.WRITER, Role.ADMIN)


PUBLIC: Final = RouteRule(None)
_LISTED: Final = RouteRule(Role.READER, RuleTarget.SOMEWHERE)
_READ: Final = RouteRule(Role.READER, RuleTarget.SUBJECT)
_WRITE: Final = RouteRule(Role.WRITER, RuleTarget.SUBJECT)
_ADMIN: Final = RouteRule(Role.ADMIN, RuleTarget.SUBJECT)
_ADMIN_OF_ALL: Final = RouteRule(Role.ADMIN, RuleTarget.EVERYWHERE)

RULES: Final[Mapping[tuple[str, str], RouteRule]] = {
    ("GET", "/health"): PUBLIC,
    ("GET", "/health/ready"): PUBLIC,
    ("GET", "/docs"): PUBLIC,
    ("GET", "/openapi.json"): PUBLIC,
    ("GET", "/"): _LISTED,
    ("GET", "/metrics"): _LISTED,
    ("GET", "/v1/metadata/id"): _LISTED,
    ("GET", "/v1/metadata/version"): _LISTED,
    ("GET", "/v1/metadata/deployment"): _LISTED,
    ("GET", "/subjects"): _LISTED,
    ("POST", "/subjects/{subject}"): _READ,
    ("DELETE", "/subjects/{subject}"): _ADMIN,
    ("POST", "/subjects/{subject}/undelete"): _ADMIN,
    ("GET", "/subjects/{subject}/versions"): _READ,
    ("POST", "/subjects/{subject}/versions"): _WRITE,
    ("POST", "/subjects/{subject}/versions/{version}/tags"): _WRITE,
    ("GET", "/subjects/{subject}/versions/{version}"): _READ,
    ("DELETE", "/subjects/{subject}/versions/{version}"): _ADMIN,
    ("GET", "/subjects/{subject}/versions/{version}/schema"): _READ,
    ("GET", "/subjects/{subject}/versions/{version}/referencedby"): _READ,
    ("GET", "/subjects/{subject}/diff/{old}/{new}"): _READ,
    ("GET", "/subjects/{subject}/metadata"): _READ,
    ("GET", "/schemas"): _LISTED,
    ("GET", "/schemas/types"): _LISTED,
    ("GET", "/schemas/ids/{schema_id}"): _LISTED,
    ("GET", "/schemas/ids/{schema_id}/schema"): _LISTED,
    ("GET", "/schemas/ids/{schema_id}/subjects"): _LISTED,
    ("GET", "/schemas/ids/{schema_id}/versions"): _LISTED,
    ("GET", "/schemas/guids/{guid}"): _LISTED,
    ("GET", "/schemas/guids/{guid}/ids"): _LISTED,
    ("POST", "/compatibility/subjects/{subject}/versions"): _READ,
    ("POST", "/compatibility/subjects/{subject}/versions/{version}"): _READ,
    ("GET", "/config"): _LISTED,
    ("PUT", "/config"): _ADMIN_OF_ALL,
    ("DELETE", "/config"): _ADMIN_OF_ALL,
    ("GET", "/config/{subject}"): _READ,
    ("PUT", "/config/{subject}"): _ADMIN,
    ("DELETE", "/config/{subject}"): _ADMIN,
    ("GET", "/mode"): _LISTED,
    ("PUT", "/mode"): _ADMIN_OF_ALL,
    ("DELETE", "/mode"): _ADMIN_OF_ALL,
    ("GET", "/mode/{subject}"): _READ,
    ("PUT", "/mode/{subject}"): _ADMIN,
    ("DELETE", "/mode/{subject}"): _ADMIN,
    ("GET", "/contexts"): _LISTED,
    ("DELETE", "/contexts/{context}"): RouteRule(Role.ADMIN, RuleTarget.CONTEXT),
    ("GET", "/associations"): _LISTED,
    ("GET", "/associations/{rest:path}"): _LISTED,
    ("PUT", "/associations"): _LISTED,
    ("POST", "/associations"): _LISTED,
    ("POST", "/associations:batch"): _LISTED,
    ("DELETE", "/associations"): _LISTED,
    ("DELETE", "/associations/{rest:path}"): _LISTED,
    ("GET", "/audit"): _ADMIN_OF_ALL,
}
