"""/schemas: by id, by guid, and all of them."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path, Query, Response

from headworks._registry.operations.reader import Listing
from headworks._registry.service.dependencies import PartsOf
from headworks._registry.service.guard import SightOf
from headworks._registry.service.parameters import (
    Flag,
    Listed,
    Page,
    Prefix,
    SchemaId,
    Shaped,
    SubjectHint,
    answer,
    page_of,
)

__all__ = ["router"]

router = APIRouter(tags=["schemas"])
_LONGEST_PAGE = 1000


@router.get("/schemas")
def list_schemas(
    parts: PartsOf,
    listed: Listed,
    page: Page,
    sight: SightOf,
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
    length = limit if 0 < limit <= _LONGEST_PAGE else _LONGEST_PAGE
    listing = Listing(
        prefix, listed, latest_only, aliases, tuple(rule_types or ()), first, first + length
    )
    return answer(parts.reader.every_version(listing, seen=sight.reads))


@router.get("/schemas/types")
def list_types() -> Response:
    """The kinds of schemas that this registry keeps."""
    return answer(["AVRO"])


@router.get("/schemas/ids/{schema_id}")
def read_schema(
    parts: PartsOf,
    schema_id: SchemaId,
    subject: SubjectHint,
    sight: SightOf,
    shape: Shaped,
    with_max_id: Annotated[Flag, Query(alias="fetchMaxId")] = False,
) -> Response:
    """A schema by id."""
    found = parts.reader.schema(schema_id, hint=subject, shape=shape, with_max_id=with_max_id)
    sight.schema(schema_id, subject, found)
    return answer(found)


@router.get("/schemas/ids/{schema_id}/schema")
def read_schema_text(
    parts: PartsOf, schema_id: SchemaId, subject: SubjectHint, sight: SightOf, shape: Shaped
) -> Response:
    """The bare schema with this id."""
    entity = parts.reader.schema(schema_id, hint=subject, shape=shape)
    sight.schema(schema_id, subject, entity)
    return Response(entity["schema"], media_type="application/json")


@router.get("/schemas/ids/{schema_id}/subjects")
def list_subjects_of_schema(
    parts: PartsOf,
    schema_id: SchemaId,
    subject: SubjectHint,
    page: Page,
    sight: SightOf,
    deleted: Flag = False,
) -> Response:
    """The subjects in which the schema is registered."""
    uses = sight.uses(schema_id, parts.reader.uses(schema_id, hint=subject, deleted=deleted))
    return answer(page_of(list(dict.fromkeys(name for name, _ in uses)), page))


@router.get("/schemas/ids/{schema_id}/versions")
def list_versions_of_schema(
    parts: PartsOf,
    schema_id: SchemaId,
    subject: SubjectHint,
    page: Page,
    sight: SightOf,
    deleted: Flag = False,
) -> Response:
    """The subjects and versions that have the schema."""
    uses = sight.uses(schema_id, parts.reader.uses(schema_id, hint=subject, deleted=deleted))
    found = [{"subject": name, "version": number} for name, number in uses]
    return answer(page_of(found, page))


@router.get("/schemas/guids/{guid}")
def read_schema_by_guid(
    parts: PartsOf, guid: Annotated[str, Path()], sight: SightOf, shape: Shaped
) -> Response:
    """A schema by guid, the same in every registry."""
    sight.guid(guid)
    return answer(parts.reader.schema_by_guid(guid, shape=shape))


@router.get("/schemas/guids/{guid}/ids")
def list_ids_of_guid(parts: PartsOf, guid: Annotated[str, Path()], sight: SightOf) -> Response:
    """The ids of the schema, by context."""
    sight.guid(guid)
    found = parts.reader.ids_of_guid(guid)
    seen = sight.contexts([one["context"] for one in found])
    return answer([one for one in found if one["context"] in seen])
