"""The permissions of one principal on topics, subjects, and consumer groups. Pure.

Rules:

- `writer` includes `reader`, and `admin` includes both. (The broker's grants are narrower: there,
  `writer` does not include `reader`.)
- Subjects are compared in their canonical form: `:.:orders` is `orders`, and a subject of another
  context is `:.context:name`. A grant with the prefix `:.context:` covers the whole context. A
  grant with that name covers the context itself and none of its subjects.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from headworks._server.security import ANONYMOUS, Grant, Principal, ResourceType, Role
from headworks._subject import Subject


@dataclass(frozen=True, slots=True)
class PrincipalPermissions:
    """A principal and the grants as they are now."""

    principal: Principal
    grants: Sequence[Grant] | None  # None: the server is open, and everything is allowed
    anonymous_reads: bool = False  # everyone may read, whatever the grants say

    def may(self, role: Role, subject: str) -> bool:
        """Return whether the principal has the role for a subject, or a context (`:.context:`)."""
        return self.has(role, str(Subject.parse(subject)))

    def may_read(self, resource: ResourceType, name: str) -> bool:
        """Return whether the principal may read a topic or a group; for a subject, use `may`."""
        return self.has(Role.READER, name, resource)

    def may_read_any(self, subjects: Iterable[str]) -> bool:
        """Return whether the principal may read one of these subjects, in canonical form."""
        return any(self.has(Role.READER, name) for name in subjects)

    @property
    def reads_everything(self) -> bool:
        """Whether the principal may read every subject."""
        return self.has(Role.READER, "")

    def has(self, role: Role, name: str, resource: ResourceType = ResourceType.SUBJECTS) -> bool:
        """Return whether the principal has the role for a canonical name; "": for every name."""
        return self._allows(role) or any(
            grant.gives(self.principal, sufficient, resource, name)
            for grant in self.grants or ()
            for sufficient in _sufficient_roles(role)
        )

    def has_somewhere(self, role: Role) -> bool:
        """Return whether the principal has the role for at least one subject."""
        return self._allows(role) or any(
            grant.gives_somewhere(self.principal, sufficient, ResourceType.SUBJECTS)
            for grant in self.grants or ()
            for sufficient in _sufficient_roles(role)
        )

    def _allows(self, role: Role) -> bool:
        """Return whether the server allows the role to everyone."""
        return self.grants is None or (self.anonymous_reads and role is Role.READER)


def _sufficient_roles(role: Role) -> tuple[Role, ...]:
    """Return the roles that include `role`; `Grant` itself adds admin."""
    return (role, Role.WRITER) if role is Role.READER else (role,)


EVERYTHING_ALLOWED = PrincipalPermissions(ANONYMOUS, None)
