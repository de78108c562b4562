"""The guard of every route: it authenticates the sender and enforces the route's rule.

Rules:

- `guard` runs before the rest of a route, and before the body is read. It stores the principal (for
  the audit log and the access log) and the permissions in the request's scope, which no header can
  reach.
- A subject without a context that is not in the default one is looked up in the other contexts. For
  a principal that may not read everything it is not: the rule was checked for the name as written.
- If a request names further subjects (references, an alias, an id), the route asks
  `RequestPermissions`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Annotated, Any, cast

from fastapi import Depends, Request

from headworks._registry.fast_reads import SUBJECTS
from headworks._registry.model.definition import JsonObject
from headworks._registry.model.refusals import ServiceError
from headworks._registry.operations.proposals import ProposedSchema
from headworks._registry.security.enforcement import refusal, require_role, require_rule
from headworks._registry.security.route_rules import RULES
from headworks._registry.service.dependencies import Dependencies, DependenciesOf
from headworks._registry.service.parameters import CONFINED, decoded
from headworks._server.security import Role
from headworks._server.security.http.permissions import EVERYTHING_ALLOWED, PrincipalPermissions
from headworks._server.security.http.request import AuthenticationError, authorization_of
from headworks._subject import DEFAULT_CONTEXT, Subject

if TYPE_CHECKING:
    from headworks._server.security.http.authenticator import HttpAuthenticator

PRINCIPAL = "headworks.principal"
_PERMISSIONS = "headworks.permission"


async def guard(request: Request) -> None:
    """Raise ServiceError if the sender may not use the route: 401, 403, 429, or 503."""
    authenticator: HttpAuthenticator | None = request.app.state.authenticator
    if authenticator is None:
        return
    template = request.scope["route"].path
    rule = RULES.get((request.method, template))
    if rule is None:
        raise ServiceError(403, 40301, f"{request.method} {template} is allowed to nobody")
    if rule.role is None:
        return
    try:
        permissions = await authenticator.authenticate(authorization_of(request.scope["headers"]))
    except AuthenticationError as error:
        raise ServiceError(error.status, error.status, error.message) from None
    request.scope[PRINCIPAL] = permissions.principal.name
    request.scope[_PERMISSIONS] = permissions
    named = request.path_params.get("subject") or request.path_params.get("context") or ""
    require_rule(permissions, rule, decoded(named))
    if not permissions.reads_everything:
        request.scope[CONFINED] = True


class RequestPermissions:
    """The permissions of one request on subjects other than the one in its path."""

    def __init__(self, scope: dict[str, Any], dependencies: Dependencies) -> None:
        self._scope = scope  # the request's ASGI scope
        self._reader = dependencies.reader
        self._permissions = cast(PrincipalPermissions, scope.get(_PERMISSIONS, EVERYTHING_ALLOWED))
        self._guarded = _PERMISSIONS in scope  # False: the registry is open

    @property
    def read_everything(self) -> bool:
        """Whether the sender may read every subject."""
        return self._permissions.reads_everything

    def reads(self, subject: str) -> bool:
        """Return whether the sender may read a subject."""
        return self._permissions.may(Role.READER, subject)

    def subjects(self, names: Sequence[str]) -> list[str]:
        """Return those of the subjects that the sender may read."""
        if self._permissions.reads_everything:
            return list(names)
        return [name for name in names if self.reads(name)]

    def contexts(self, names: Sequence[str]) -> list[str]:
        """Return the default context, and those in which the sender may read a subject."""
        if self._permissions.reads_everything:
            return list(names)
        seen = {Subject.parse(one).context for one in self.subjects(self._reader.every_subject())}
        return [name for name in names if name == DEFAULT_CONTEXT or name in seen]

    def proposal(self, subject: str, proposal: ProposedSchema) -> ProposedSchema:
        """Return the proposal; 403 unless the sender may read every subject that it refers to.

        An id that the caller chooses requires the role admin, because that is an import.
        """
        if not self._guarded:
            return proposal
        if proposal.references:
            within = self._reader.context_of(subject)  # the context in which they are looked up
            for reference in proposal.references:
                target = Subject.parse(reference.subject, within=within)
                require_role(self._permissions, Role.READER, str(target))
        if proposal.id is not None:
            require_role(self._permissions, Role.ADMIN, subject)
        return proposal

    def config(self, subject: str, body: JsonObject) -> JsonObject:
        """Return the settings; 403 if they name an alias of which the sender is not an admin."""
        alias = body.get("alias")
        if self._guarded and isinstance(alias, str) and alias:
            within = Subject.parse(subject).context
            target = Subject.parse(alias, within=within)
            require_role(self._permissions, Role.ADMIN, str(target))
        return body

    def schema(self, schema_id: int, hint: str, entity: JsonObject) -> None:
        """Raise 403 unless the sender may read a schema by id.

        A response that names a subject requires a reader of that subject. Any other response
        requires a reader of some subject that has the schema.
        """
        if not self._guarded:
            return
        named = entity.get("subject")
        if isinstance(named, str):
            self._require_reader_of_any([named], f"subject '{named}'")
        else:
            uses = self._reader.uses(schema_id, hint=hint, deleted=True)
            names = dict.fromkeys(subject for subject, _ in uses)
            self._require_reader_of_any(names, f"a subject that has the schema {schema_id}")

    def guid(self, guid: str) -> None:
        """Raise 403 unless the sender may read some subject that has the schema with this guid."""
        if not self._permissions.reads_everything:
            names = self._reader.subjects_of_guid(guid)
            self._require_reader_of_any(names, f"a subject that has the schema {guid}")

    def uses(self, schema_id: int, found: list[tuple[str, int]]) -> list[tuple[str, int]]:
        """Return the (subject, version) pairs that the sender may read; 403 if none is left."""
        if self._permissions.reads_everything:
            return found
        if found:
            names = (subject for subject, _ in found)
            self._require_reader_of_any(names, f"a subject that has the schema {schema_id}")
        return [(subject, number) for subject, number in found if self.reads(subject)]

    def _require_reader_of_any(self, names: Iterable[str], target: str) -> None:
        subjects = tuple(names)
        self._scope[SUBJECTS] = subjects
        if not self._permissions.may_read_any(subjects):
            raise refusal(self._permissions, Role.READER, target)


async def request_permissions(request: Request, dependencies: DependenciesOf) -> RequestPermissions:
    """Return the permissions of a request; call it after the guard."""
    return RequestPermissions(cast(dict[str, Any], request.scope), dependencies)


RequestPermissionsOf = Annotated[RequestPermissions, Depends(request_permissions)]
