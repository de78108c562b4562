"""What one principal may do. Pure: the grants are those of one moment.

Names are given as requests write them and compared as the registry does: `:.:orders` is `orders`,
and a subject of another context is `:.context:name`. A grant with the prefix `:.context:` is about
the whole context; one with that name is about the context itself and none of its subjects.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from headworks._registry.model.refusals import ServiceError
from headworks._registry.model.subject import Subject
from headworks._registry.security.rules import RouteRule, RuleTarget
from headworks._server.security import ANONYMOUS, Grant, Principal, ResourceType, Role

__all__ = ["ALL", "Permission"]

_FORBIDDEN_CODE = 40301
_UNAUTHORIZED_CODE = 401


@dataclass(frozen=True, slots=True)
class Permission:
    """A principal and the grants; `grants` None: the registry is open, everything is allowed."""

    principal: Principal
    grants: Sequence[Grant] | None
    anonymous_reads: bool = False

    def may(self, role: Role, name: str) -> bool:
        """Whether the principal has the role for a subject (or a context, `:.context:`)."""
        return self._has(role, str(Subject.parse(name)))

    def may_read(self, kind: ResourceType, name: str) -> bool:
        """Whether the principal may read a topic or a group; for a subject, ask `may`."""
        return self._has(Role.READER, name, kind)

    def may_read_some(self, names: Iterable[str]) -> bool:
        """Whether the principal may read one of these subjects, as the registry writes them."""
        return any(self._has(Role.READER, name) for name in names)

    @property
    def reads_everything(self) -> bool:
        """Whether there is nothing that the principal may not read."""
        return self._has(Role.READER, "")

    def must(self, role: Role, name: str) -> None:
        """ServiceError if the principal does not have the role for a subject."""
        if not self.may(role, name):
            raise self.refusal(role, f"subject '{name}'")

    def must_satisfy(self, rule: RouteRule, name: str) -> None:
        """ServiceError if the principal may not use a route; `name` as the rule asks for one."""
        if rule.role is None:
            return
        if rule.on is RuleTarget.SOMEWHERE:
            if not self._has_somewhere(rule.role):
                raise self.refusal(rule.role, "any subject")
        elif rule.on is RuleTarget.EVERYWHERE:
            if not self._has(rule.role, ""):
                raise self.refusal(rule.role, "all subjects")
        elif rule.on is RuleTarget.CONTEXT:
            scope = str(Subject(name, ""))
            if not self._has(rule.role, scope):
                raise self.refusal(rule.role, f"context '{name}'")
        else:
            self.must(rule.role, name)

    def refusal(self, role: Role, what: str) -> ServiceError:
        """The answer to somebody who may not: 401 if they have not said who they are, else 403."""
        if self.principal == ANONYMOUS:
            return ServiceError(
                401, _UNAUTHORIZED_CODE, f"Say who you are: this takes a {role} of {what}"
            )
        return ServiceError(
            403,
            _FORBIDDEN_CODE,
            f"User '{self.principal.name}' has not the role {role} on {what}: "
            "the registry's file of grants must say so",
        )

    def _has(self, role: Role, name: str, kind: ResourceType = ResourceType.SUBJECTS) -> bool:
        if self.grants is None or self._reads_anyway(role):
            return True
        return any(
            grant.gives(self.principal, one, kind, name)
            for grant in self.grants
            for one in _enough(role)
        )

    def _has_somewhere(self, role: Role) -> bool:
        if self.grants is None or self._reads_anyway(role):
            return True
        return any(
            grant.gives_somewhere(self.principal, one, ResourceType.SUBJECTS)
            for grant in self.grants
            for one in _enough(role)
        )

    def _reads_anyway(self, role: Role) -> bool:
        """Whether what is asked for is given to everybody, the anonymous included."""
        return self.anonymous_reads and role is Role.READER


def _enough(role: Role) -> tuple[Role, ...]:
    """The roles of which one is enough; a grant knows already that admin includes all."""
    return (role, Role.WRITER) if role is Role.READER else (role,)


ALL = Permission(ANONYMOUS, None)
