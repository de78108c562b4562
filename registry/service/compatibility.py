"""/compatibility: check a schema without registering it."""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

from fastapi import APIRouter, Response

from headworks._registry.model.definition import JsonObject
from headworks._registry.model.refusals import ServiceError
from headworks._registry.operations.compatibility_check import CompatibilityResult
from headworks._registry.service.bodies import BODY_OF_SCHEMA, Body, read_proposal
from headworks._registry.service.dependencies import Dependencies, DependenciesOf
from headworks._registry.service.direct_route import may_answer_with, runs_in
from headworks._registry.service.guard import RequestPermissions, RequestPermissionsOf
from headworks._registry.service.parameters import Flag, SubjectName, VersionName, answer
from headworks._registry.worker_pools import CHECKS

router = APIRouter(tags=["compatibility"])
_INVALID_SCHEMA_CODE = 42201


async def _check_from_memory(
    *,
    dependencies: Dependencies,
    subject: str,
    body: JsonObject,
    version: int | str | None = None,
    verbose: bool = False,
    **_: object,
) -> Response | None:
    """Answer a check of a short text without references, if memory has what it compares."""
    text = body.get("schema")
    if not isinstance(text, str) or not text.strip():
        return None
    is_alone = body.keys() <= {"schema", "schemaType"} and body.get("schemaType") in (None, "AVRO")
    if not is_alone or not dependencies.registrar.may_check_from_memory(subject, text, version):
        return None
    revision = await dependencies.revision.now()
    if revision is None:
        return None
    check = dependencies.registrar.check_from_memory
    return _answer(lambda: check(subject, text, version, revision), verbose=verbose)


@router.post("/compatibility/subjects/{subject}/versions", openapi_extra=BODY_OF_SCHEMA)
@runs_in(CHECKS)
@may_answer_with(_check_from_memory)
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
@may_answer_with(_check_from_memory)
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
    def check() -> CompatibilityResult:
        proposal = permissions.proposal(subject, read_proposal(body))
        return dependencies.registrar.check(subject, proposal, version, normalize=normalize)

    return cast(Response, _answer(check, verbose=verbose))


def _answer(check: Callable[[], CompatibilityResult | None], *, verbose: bool) -> Response | None:
    try:
        verdict = check()
    except ServiceError as error:
        # With `verbose`, an invalid schema is a result and not an error.
        if verbose and error.code == _INVALID_SCHEMA_CODE:
            return answer({"is_compatible": False, "messages": [error.message]})
        raise
    if verdict is None:
        return None
    content: dict[str, object] = {"is_compatible": verdict.is_compatible}
    if verbose:
        content["messages"] = list(verdict.messages)
        if verdict.findings:
            content["findings"] = [finding.as_dict() for finding in verdict.findings]
    return answer(content)
