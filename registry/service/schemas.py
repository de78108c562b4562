"""/schemas: by id, by guid, and all of them."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path, Query, Request, Response

from headworks import _version_lines
from headworks._registry.operations.version_listing import VersionQuery
from headworks._registry.service.dependencies import DependenciesOf
from headworks._registry.service.guard import RequestPermissionsOf
from headworks._registry.service.middleware import accepts
from headworks._registry.service.parameters import (
    Flag,
    Page,
    Prefix,
    ResponseFormatOf,
    SchemaId,
    SubjectHint,
    VersionFilterOf,
    answer,
    page_of,
)

router = APIRouter(tags=["schemas"])
_MAX_PAGE_VERSIONS = 1000


@router.get("/schemas")
def list_schemas(
    request: Request,
    dependencies: DependenciesOf,
    listed: VersionFilterOf,
    page: Page,
    permissions: RequestPermissionsOf,
    prefix: Prefix = "",
    aliases: Flag = False,
    latest_only: Annotated[Flag, Query(alias="latestOnly")] = False,
    rule_types: Annotated[list[str] | None, Query(alias="ruleType")] = None,
    resource_type: Annotated[str, Query(alias="resourceType")] = "",
    association_types: Annotated[list[str] | None, Query(alias="associationType")] = None,
    lifecycle: str = "",
) -> Response:
    """The versions of all subjects, at most 1,000 at a time."""
    if resource_type or association_types or lifecycle:
        # Asks for schemas that are associated with something: none is.
        return answer([])
    first, limit = page
    length = limit if 0 < limit <= _MAX_PAGE_VERSIONS else _MAX_PAGE_VERSIONS
    listing = VersionQuery(
        prefix, listed, latest_only, aliases, tuple(rule_types or ()), first, first + length
    )
    seen = None if permissions.read_everything else permissions.reads
    lines = _version_lines.CONTENT_TYPE
    if accepts(request.headers.get("accept", ""), lines):
        found = dependencies.reader.every_version_in_lines(listing, seen=seen)
        return Response(found, headers={"content-type": lines})
    return answer(dependencies.reader.every_version(listing, seen=seen))


@router.get("/schemas/types")
def list_types() -> Response:
    """The kinds of schemas that this registry keeps."""
    return answer(["AVRO"])


@router.get("/schemas/ids/{schema_id}")
def read_schema(
    dependencies: DependenciesOf,
    schema_id: SchemaId,
    subject: SubjectHint,
    permissions: RequestPermissionsOf,
    response_format: ResponseFormatOf,
    with_max_id: Annotated[Flag, Query(alias="fetchMaxId")] = False,
) -> Response:
    """A schema by id."""
    found = dependencies.reader.schema(
        schema_id, hint=subject, response_format=response_format, with_max_id=with_max_id
    )
    permissions.schema(schema_id, subject, found)
    return answer(found)


@router.get("/schemas/ids/{schema_id}/schema")
def read_schema_text(
    dependencies: DependenciesOf,
    schema_id: SchemaId,
    subject: SubjectHint,
    permissions: RequestPermissionsOf,
    response_format: ResponseFormatOf,
) -> Response:
    """The bare schema with this id."""
    entity = dependencies.reader.schema(schema_id, hint=subject, response_format=response_format)
    permissions.schema(schema_id, subject, entity)
    return Response(entity["schema"], media_type="application/json")


@router.get("/schemas/ids/{schema_id}/subjects")
def list_subjects_of_schema(
    dependencies: DependenciesOf,
    schema_id: SchemaId,
    subject: SubjectHint,
    page: Page,
    permissions: RequestPermissionsOf,
    deleted: Flag = False,
) -> Response:
    """The subjects in which the schema is registered."""
    uses = permissions.uses(
        schema_id, dependencies.reader.uses(schema_id, hint=subject, deleted=deleted)
    )
    return answer(page_of(list(dict.fromkeys(name for name, _ in uses)), page))


@router.get("/schemas/ids/{schema_id}/versions")
def list_versions_of_schema(
    dependencies: DependenciesOf,
    schema_id: SchemaId,
    subject: SubjectHint,
    page: Page,
    permissions: RequestPermissionsOf,
    deleted: Flag = False,
) -> Response:
    """The subjects and versions that have the schema."""
    uses = permissions.uses(
        schema_id, dependencies.reader.uses(schema_id, hint=subject, deleted=deleted)
    )
    found = [{"subject": name, "version": number} for name, number in uses]
    return answer(page_of(found, page))


@router.get("/schemas/guids/{guid}")
def read_schema_by_guid(
    dependencies: DependenciesOf,
    guid: Annotated[str, Path()],
    permissions: RequestPermissionsOf,
    response_format: ResponseFormatOf,
) -> Response:
    """A schema by guid, the same in every registry."""
    permissions.guid(guid)
    return answer(dependencies.reader.schema_by_guid(guid, response_format=response_format))


@router.get("/schemas/guids/{guid}/ids")
def list_ids_of_guid(
    dependencies: DependenciesOf, guid: Annotated[str, Path()], permissions: RequestPermissionsOf
) -> Response:
    """The ids of the schema, by context."""
    permissions.guid(guid)
    found = dependencies.reader.ids_of_guid(guid)
    seen = permissions.contexts([one["context"] for one in found])
    return answer([one for one in found if one["context"] in seen])
