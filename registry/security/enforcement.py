"""The refusals that follow from route rules and the permissions of a principal. Pure."""

from __future__ import annotations

from headworks._registry.model.refusals import ServiceError
from headworks._registry.security.route_rules import RouteRule, RuleTarget
from headworks._server.security import ANONYMOUS, Role
from headworks._server.security.http.permissions import PrincipalPermissions
from headworks._subject import GLOBAL_CONTEXT, Subject

_FORBIDDEN_CODE = 40301
_UNAUTHORIZED_CODE = 401


def require_role(permissions: PrincipalPermissions, role: Role, subject: str) -> None:
    """Raise ServiceError if the principal lacks the role for a subject."""
    if not permissions.may(role, subject):
        raise refusal(permissions, role, f"subject '{subject}'")


def require_rule(permissions: PrincipalPermissions, rule: RouteRule, name: str) -> None:
    """Raise ServiceError if the principal may not use a route on `name`.

    `name` is the subject or the context in the path, as the rule's target says.
    """
    if rule.role is None:
        return
    if rule.on is RuleTarget.SOMEWHERE:
        if not permissions.has_somewhere(rule.role):
            raise refusal(permissions, rule.role, "any subject")
    elif rule.on is RuleTarget.EVERYWHERE or _is_for_all_contexts(rule, name):
        if not permissions.has(rule.role, ""):
            raise refusal(permissions, rule.role, "all subjects")
    elif rule.on is RuleTarget.CONTEXT:
        if not permissions.has(rule.role, str(Subject(name, ""))):
            raise refusal(permissions, rule.role, f"context '{name}'")
    else:
        require_role(permissions, rule.role, name)


def _is_for_all_contexts(rule: RouteRule, name: str) -> bool:
    context = name if rule.on is RuleTarget.CONTEXT else Subject.parse(name).context
    return context == GLOBAL_CONTEXT


def refusal(permissions: PrincipalPermissions, role: Role, target: str) -> ServiceError:
    """Return the refusal for a missing role: 401 if the principal is anonymous, otherwise 403."""
    principal = permissions.principal
    if principal == ANONYMOUS:
        return ServiceError(
            401,
            _UNAUTHORIZED_CODE,
            f"Authentication required: this needs the role {role} on {target}",
        )
    return ServiceError(
        403,
        _FORBIDDEN_CODE,
        f"User '{principal.name}' does not have the role {role} on {target}: "
        "grant it in the registry's file of grants",
    )
