"""/compatibility: check a schema without registering it."""

from __future__ import annotations

from fastapi import APIRouter, Response

from headworks._registry.model.definition import JsonObject
from headworks._registry.model.refusals import ServiceError
from headworks._registry.service.bodies import BODY_OF_SCHEMA, Body, read_proposal
from headworks._registry.service.dependencies import Dependencies, DependenciesOf
from headworks._registry.service.direct_route import runs_in
from headworks._registry.service.guard import RequestPermissions, RequestPermissionsOf
from headworks._registry.service.parameters import Flag, SubjectName, VersionName, answer
from headworks._registry.worker_pools import CHECKS

router = APIRouter(tags=["compatibility"])
_INVALID_SCHEMA_CODE = 42201


@router.post("/compatibility/subjects/{subject}/versions", openapi_extra=BODY_OF_SCHEMA)
@runs_in(CHECKS)
def check_all(
    dependencies: DependenciesOf,
    subject: SubjectName,
    body: Body,
    permissions: RequestPermissionsOf,
    normalize: Flag = False,
    verbose: Flag = False,
) -> Response:
    """Check a schema against the versions that the subject's level asks for."""
    return _check(
        dependencies, permissions, subject, body, None, normalize=normalize, verbose=verbose
    )


@router.post("/compatibility/subjects/{subject}/versions/{version}", openapi_extra=BODY_OF_SCHEMA)
@runs_in(CHECKS)
def check_one(
    dependencies: DependenciesOf,
    subject: SubjectName,
    version: VersionName,
    body: Body,
    permissions: RequestPermissionsOf,
    normalize: Flag = False,
    verbose: Flag = False,
) -> Response:
    """Check a schema against one version."""
    return _check(
        dependencies, permissions, subject, body, version, normalize=normalize, verbose=verbose
    )


def _check(
    dependencies: Dependencies,
    permissions: RequestPermissions,
    subject: str,
    body: JsonObject,
    version: int | str | None,
    *,
    normalize: bool,
    verbose: bool,
) -> Response:
    try:
        proposal = permissions.proposal(subject, read_proposal(body))
        verdict = dependencies.registrar.check(subject, proposal, version, normalize=normalize)
    except ServiceError as error:
        # With `verbose`, an invalid schema is a result and not an error.
        if verbose and error.code == _INVALID_SCHEMA_CODE:
            return answer({"is_compatible": False, "messages": [error.message]})
        raise
    content: dict[str, object] = {"is_compatible": verdict.is_compatible}
    if verbose:
        content["messages"] = list(verdict.messages)
        if verdict.findings:
            content["findings"] = [finding.as_dict() for finding in verdict.findings]
    return answer(content)
