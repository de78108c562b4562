"""The guard at every route: who asks, may they use it, and what of its answer may they see.

Rules:

- `guard` runs before anything else of a route, also before the body is read. What it finds is put
  into the request's scope, which no header can reach: the principal for the audit log and the
  access log, the permission for the route.
- A subject that names no context and is not in the default one is looked for in the others; but
  not for who may not read everything. What was allowed is the name that was written.
- Where a request names further subjects (references, an alias, an id), the route asks
  `RequestPermissions`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Annotated, Any, cast

from fastapi import Depends, Request

from headworks._registry.fast_reads import SUBJECTS
from headworks._registry.model.definition import JsonObject
from headworks._registry.model.refusals import ServiceError
from headworks._registry.model.subject import DEFAULT_CONTEXT, Subject
from headworks._registry.operations.proposals import ProposedSchema
from headworks._registry.security.permission import ALL, Permission
from headworks._registry.security.rules import RULES
from headworks._registry.security.security import Security, authorization_of
from headworks._registry.service.dependencies import Dependencies, DependenciesOf
from headworks._registry.service.parameters import CONFINED, decoded
from headworks._server.security import Role

__all__ = ["PRINCIPAL", "RequestPermissions", "RequestPermissionsOf", "guard"]

PRINCIPAL = "headworks.principal"
_PERMISSION = "headworks.permission"


async def guard(request: Request) -> None:
    """Refuse who may not use the route: 401, 403; 429 and 503 if that cannot be found out now."""
    security: Security | None = request.app.state.security
    if security is None:
        return
    template = request.scope["route"].path
    rule = RULES.get((request.method, template))
    if rule is None:
        raise ServiceError(403, 40301, f"{request.method} {template} is allowed to nobody")
    if rule.role is None:
        return
    permission = await security.admit(authorization_of(request.scope["headers"]))
    request.scope[PRINCIPAL] = permission.principal.name
    request.scope[_PERMISSION] = permission
    named = request.path_params.get("subject") or request.path_params.get("context") or ""
    permission.must_satisfy(rule, decoded(named))
    if not permission.reads_everything:
        request.scope[CONFINED] = True


class RequestPermissions:
    """What one request may see and touch beyond the subject in its path."""

    def __init__(self, scope: dict[str, Any], dependencies: Dependencies) -> None:
        self._scope = scope
        self._reader = dependencies.reader
        self._permission = cast(Permission, scope.get(_PERMISSION, ALL))
        self._guarded = _PERMISSION in scope

    def reads(self, subject: str) -> bool:
        """Whether a subject may be read."""
        return self._permission.may(Role.READER, subject)

    def subjects(self, names: Sequence[str]) -> list[str]:
        """Those of the subjects that may be read."""
        if self._permission.reads_everything:
            return list(names)
        return [name for name in names if self.reads(name)]

    def contexts(self, names: Sequence[str]) -> list[str]:
        """The default context, and those in which some subject may be read."""
        if self._permission.reads_everything:
            return list(names)
        seen = {Subject.parse(one).context for one in self.subjects(self._reader.every_subject())}
        return [name for name in names if name == DEFAULT_CONTEXT or name in seen]

    def proposal(self, subject: str, proposal: ProposedSchema) -> ProposedSchema:
        """The proposal itself; 403 unless every subject that it refers to may be read.

        An id of the caller's own choice takes an admin: it is how schemas are imported.
        """
        if not self._guarded:
            return proposal
        if proposal.references:
            within = self._reader.context_of(subject)  # where they will be looked for
            for reference in proposal.references:
                target = Subject.parse(reference.subject, within=within)
                self._permission.must(Role.READER, str(target))
        if proposal.id is not None:
            self._permission.must(Role.ADMIN, subject)
        return proposal

    def config(self, subject: str, body: JsonObject) -> JsonObject:
        """The settings themselves; 403 for an alias of a subject that one is not an admin of."""
        alias = body.get("alias")
        if self._guarded and isinstance(alias, str) and alias:
            within = Subject.parse(subject).context
            self._permission.must(Role.ADMIN, str(Subject.parse(alias, within=within)))
        return body

    def schema(self, schema_id: int, hint: str, entity: JsonObject) -> None:
        """403 unless a schema by id may be read.

        An answer that names a subject takes a reader of that one, any other a reader of some
        subject that has the schema.
        """
        if not self._guarded:
            return
        named = entity.get("subject")
        if isinstance(named, str):
            self._must_read_one([named], f"subject '{named}'")
        else:
            uses = self._reader.uses(schema_id, hint=hint, deleted=True)
            names = dict.fromkeys(subject for subject, _ in uses)
            self._must_read_one(names, f"a subject that has the schema {schema_id}")

    def guid(self, guid: str) -> None:
        """403 unless some subject that has the schema with this guid may be read."""
        if not self._permission.reads_everything:
            names = self._reader.subjects_of_guid(guid)
            self._must_read_one(names, f"a subject that has the schema {guid}")

    def uses(self, schema_id: int, found: list[tuple[str, int]]) -> list[tuple[str, int]]:
        """Those of a schema's subjects and versions that may be read; 403 if that leaves none."""
        if self._permission.reads_everything:
            return found
        if found:
            names = (subject for subject, _ in found)
            self._must_read_one(names, f"a subject that has the schema {schema_id}")
        return [(subject, number) for subject, number in found if self.reads(subject)]

    def _must_read_one(self, names: Iterable[str], what: str) -> None:
        subjects = tuple(names)
        self._scope[SUBJECTS] = subjects
        if not self._permission.may_read_some(subjects):
            raise self._permission.refusal(Role.READER, what)


async def _request_permissions(
    request: Request, dependencies: DependenciesOf
) -> RequestPermissions:
    return RequestPermissions(cast(dict[str, Any], request.scope), dependencies)


RequestPermissionsOf = Annotated[RequestPermissions, Depends(_request_permissions)]
