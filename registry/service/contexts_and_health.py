"""Contexts, server metadata, associations, the audit log, health, and metrics."""

from __future__ import annotations

from typing import Annotated, cast

from fastapi import APIRouter, Query, Request, Response

import headworks
from headworks._registry.metrics import RegistryMetrics
from headworks._registry.model.refusals import ServiceError
from headworks._registry.service.dependencies import DependenciesOf
from headworks._registry.service.direct_route import runs_in
from headworks._registry.service.guard import RequestPermissionsOf
from headworks._registry.service.parameters import (
    MAX_INT,
    Author,
    Context,
    Page,
    SubjectHint,
    answer,
    page_of,
)
from headworks._registry.worker_pools import CHANGES

router = APIRouter(tags=["surroundings"])
_MAX_AUDIT_ENTRIES = 1000


@router.get("/")
def read_root() -> Response:
    """An empty object."""
    return answer({})


@router.get("/contexts")
def list_contexts(
    dependencies: DependenciesOf,
    page: Page,
    permissions: RequestPermissionsOf,
    prefix: Annotated[str, Query(alias="contextPrefix")] = "",
) -> Response:
    """The contexts, the default one (".") first."""
    return answer(page_of(permissions.contexts(dependencies.reader.contexts(prefix)), page))


@router.delete("/contexts/{context}")
@runs_in(CHANGES)
def delete_context(dependencies: DependenciesOf, context: Context, who: Author) -> Response:
    """Drop an empty context's settings."""
    dependencies.deleter.delete_context(context, who=who)
    return Response(status_code=204)


@router.get("/v1/metadata/id")
def read_server_id() -> Response:
    """Which registry this is."""
    return answer({"scope": {"path": [], "clusters": {"schema-registry-cluster": "headworks"}}})


@router.get("/v1/metadata/version")
def read_server_version() -> Response:
    """The version of the server."""
    return answer({"version": headworks.__version__, "commitId": ""})


@router.get("/v1/metadata/deployment")
def read_deployment() -> Response:
    """The deployment of the server: no attributes."""
    return answer({"attributes": {}})


@router.get("/associations/{rest:path}", include_in_schema=False)
@router.get("/associations")
def list_associations() -> Response:
    """Associations of topics and subjects: none are kept, so clients use the topic's name."""
    return answer([])


@router.delete("/associations/{rest:path}", include_in_schema=False)
@router.delete("/associations")
def delete_associations() -> Response:
    """There is nothing to delete."""
    return Response(status_code=204)


@router.post("/associations:batch", include_in_schema=False)
@router.put("/associations")
@router.post("/associations")
def create_association() -> Response:
    """Refused."""
    raise ServiceError(
        422, 42212, "This registry keeps no associations: a topic's subject is its name and -value"
    )


@router.get("/audit")
def read_audit(
    dependencies: DependenciesOf,
    subject: SubjectHint,
    after: Annotated[int, Query(ge=0, le=2**53)] = 0,
    limit: Annotated[int, Query(ge=0, le=MAX_INT)] = _MAX_AUDIT_ENTRIES,
) -> Response:
    """The audit log: the changes after number `after`, oldest first."""
    found = dependencies.reader.changes(
        subject=subject or None, after=after, limit=min(limit, _MAX_AUDIT_ENTRIES)
    )
    return answer(found)


@router.get("/health")
def read_health() -> Response:
    """The process answers."""
    return answer({"status": "ok"})


@router.get("/health/ready")
def read_readiness(dependencies: DependenciesOf) -> Response:
    """The store answers too."""
    dependencies.reader.is_ready()
    return answer({"status": "ok"})


@router.get("/metrics", include_in_schema=False)
def read_metrics(request: Request) -> Response:
    """The metrics, for Prometheus."""
    content, content_type = cast(RegistryMetrics, request.app.state.metrics).exposition()
    return Response(content, media_type=content_type)
