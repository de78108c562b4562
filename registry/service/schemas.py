"""/schemas: by id, by guid, and all of them."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Path, Query, Response

from registry.service.parameters import (
    Flag,
    Form,
    Listed,
    Page,
    SchemaId,
    SubjectHint,
    answer,
    page_of,
)
from registry.service.parts import PartsOf

__all__ = ["router"]

router = APIRouter(tags=["schemas"])
_LONGEST_PAGE = 1000


@router.get("/schemas")
def list_schemas(
    parts: PartsOf,
    listed: Listed,
    page: Page,
    prefix: Annotated[str, Query(alias="subjectPrefix")] = "",
    latest_only: Annotated[Flag, Query(alias="latestOnly")] = False,
    rule_types: Annotated[list[str] | None, Query(alias="ruleType")] = None,
) -> Response:
    """The versions of all subjects, at most 1,000 at a time."""
    first, limit = page
    length = _LONGEST_PAGE if limit < 0 else min(limit, _LONGEST_PAGE)
    return answer(
        parts.reader.every_version(
            prefix,
            listed,
            latest_only=latest_only,
            rule_types=rule_types or (),
            first=first,
            last=first + length,
        )
    )


@router.get("/schemas/types")
def list_types() -> Response:
    """The kinds of schemas that this registry keeps."""
    return answer(["AVRO"])


@router.get("/schemas/ids/{schema_id}")
def read_schema(
    parts: PartsOf,
    schema_id: SchemaId,
    subject: SubjectHint,
    form: Form = "",
    with_max_id: Annotated[Flag, Query(alias="fetchMaxId")] = False,
) -> Response:
    """A schema by id."""
    found = parts.reader.schema(schema_id, hint=subject, form=form, with_max_id=with_max_id)
    return answer(found)


@router.get("/schemas/ids/{schema_id}/schema")
def read_schema_text(
    parts: PartsOf, schema_id: SchemaId, subject: SubjectHint, form: Form = ""
) -> Response:
    """The bare schema with this id."""
    entity = parts.reader.schema(schema_id, hint=subject, form=form)
    return Response(entity["schema"], media_type="application/json")


@router.get("/schemas/ids/{schema_id}/subjects")
def list_subjects_of_schema(
    parts: PartsOf, schema_id: SchemaId, subject: SubjectHint, page: Page, deleted: Flag = False
) -> Response:
    """The subjects in which the schema is registered."""
    uses = parts.reader.uses(schema_id, hint=subject, deleted=deleted)
    return answer(page_of(list(dict.fromkeys(name for name, _ in uses)), page))


@router.get("/schemas/ids/{schema_id}/versions")
def list_versions_of_schema(
    parts: PartsOf, schema_id: SchemaId, subject: SubjectHint, page: Page, deleted: Flag = False
) -> Response:
    """The subjects and versions that have the schema."""
    uses = parts.reader.uses(schema_id, hint=subject, deleted=deleted)
    found = [{"subject": name, "version": number} for name, number in uses]
    return answer(page_of(found, page))


@router.get("/schemas/guids/{guid}")
def read_schema_by_guid(parts: PartsOf, guid: Annotated[str, Path()], form: Form = "") -> Response:
    """A schema by guid, the same in every registry."""
    return answer(parts.reader.schema_by_guid(guid, form=form))


@router.get("/schemas/guids/{guid}/ids")
def list_ids_of_guid(parts: PartsOf, guid: Annotated[str, Path()]) -> Response:
    """The ids of the schema, by context."""
    return answer(parts.reader.ids_of_guid(guid))
