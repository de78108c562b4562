"""What is around the schemas: contexts, metadata of the server, associations, audit log, health."""

from __future__ import annotations

from typing import Annotated, cast

from fastapi import APIRouter, Query, Request, Response

import headworks
from headworks._registry.metrics import Metrics
from headworks._registry.model.refusals import ServiceError
from headworks._registry.service.dependencies import PartsOf
from headworks._registry.service.guard import SightOf
from headworks._registry.service.parameters import (
    LARGEST_INT,
    Context,
    Page,
    SubjectHint,
    Who,
    answer,
    page_of,
)

__all__ = ["router"]

router = APIRouter(tags=["surroundings"])
_LONGEST_LOG = 1000


@router.get("/")
def read_root() -> Response:
    """An empty object: the service is there."""
    return answer({})


@router.get("/contexts")
def list_contexts(
    parts: PartsOf,
    page: Page,
    sight: SightOf,
    prefix: Annotated[str, Query(alias="contextPrefix")] = "",
) -> Response:
    """The contexts, the default one (".") first."""
    return answer(page_of(sight.contexts(parts.reader.contexts(prefix)), page))


@router.delete("/contexts/{context}")
def delete_context(parts: PartsOf, context: Context, who: Who) -> Response:
    """Drop an empty context's settings."""
    parts.deleter.delete_context(context, who=who)
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
    """How the server is deployed: nothing to tell."""
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
    parts: PartsOf,
    subject: SubjectHint,
    after: Annotated[int, Query(ge=0, le=2**53)] = 0,
    limit: Annotated[int, Query(ge=0, le=LARGEST_INT)] = _LONGEST_LOG,
) -> Response:
    """Who changed what, and when: the changes after number `after`, oldest first."""
    found = parts.reader.changes(
        subject=subject or None, after=after, limit=min(limit, _LONGEST_LOG)
    )
    return answer(found)


@router.get("/health")
def read_health() -> Response:
    """The process answers."""
    return answer({"status": "ok"})


@router.get("/health/ready")
def read_readiness(parts: PartsOf) -> Response:
    """The store answers too."""
    parts.reader.is_ready()
    return answer({"status": "ok"})


@router.get("/metrics", include_in_schema=False)
def read_metrics(request: Request) -> Response:
    """What is counted and measured, for Prometheus."""
    content, content_type = cast(Metrics, request.app.state.metrics).exposition()
    return Response(content, media_type=content_type)
