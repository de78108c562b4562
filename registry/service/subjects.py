"""/subjects: registering, looking up, listing, reading, deleting and undeleting versions."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated
from urllib.parse import unquote

from fastapi import APIRouter, Path, Query, Response

from headworks._registry.model import refusals
from headworks._registry.operations.response_bodies import Entity
from headworks._registry.service.bodies import (
    BODY_OF_SCHEMA,
    BODY_OF_TAGS,
    Body,
    read_proposal,
    read_retagging,
)
from headworks._registry.service.dependencies import PartsOf
from headworks._registry.service.guard import SightOf
from headworks._registry.service.parameters import (
    Flag,
    Listed,
    Page,
    Prefix,
    Shaped,
    SubjectName,
    VersionName,
    Who,
    answer,
    page_of,
    read_version_name,
)

__all__ = ["router"]

router = APIRouter(tags=["subjects"])


@router.get("/subjects")
def list_subjects(
    parts: PartsOf,
    listed: Listed,
    page: Page,
    sight: SightOf,
    prefix: Prefix = ":*:",
) -> Response:
    """The names of the subjects."""
    return answer(page_of(sight.subjects(parts.reader.subjects(prefix, listed)), page))


@router.post("/subjects/{subject}", openapi_extra=BODY_OF_SCHEMA)
def look_up(
    parts: PartsOf,
    subject: SubjectName,
    body: Body,
    sight: SightOf,
    shape: Shaped,
    normalize: Flag = False,
    deleted: Flag = False,
) -> Response:
    """The version of the subject that has this schema."""
    proposal = sight.proposal(subject, read_proposal(body))
    found = parts.registrar.look_up(
        subject, proposal, normalize=normalize, shape=shape, deleted=deleted
    )
    return answer(found)


@router.delete("/subjects/{subject}")
def delete_subject(
    parts: PartsOf, subject: SubjectName, who: Who, permanent: Flag = False
) -> Response:
    """Delete all versions of a subject, softly or (after that) for ever."""
    return answer(parts.deleter.delete_subject(subject, permanent=permanent, who=who))


@router.post("/subjects/{subject}/undelete")
def undelete_subject(parts: PartsOf, subject: SubjectName, who: Who) -> Response:
    """Bring back the soft-deleted versions of a subject."""
    return answer(parts.deleter.undelete_subject(subject, who=who))


@router.get("/subjects/{subject}/versions")
def list_versions(
    parts: PartsOf,
    subject: SubjectName,
    listed: Listed,
    page: Page,
    negative: Annotated[Flag, Query(alias="deletedAsNegative")] = False,
) -> Response:
    """The version numbers of a subject."""
    wanted = replace(listed, negative=negative)
    return answer(page_of(parts.reader.versions(subject, wanted), page))


@router.post("/subjects/{subject}/versions", openapi_extra=BODY_OF_SCHEMA)
def register(
    parts: PartsOf,
    subject: SubjectName,
    body: Body,
    who: Who,
    sight: SightOf,
    shape: Shaped,
    normalize: Flag = False,
    dry_run: Flag = False,
) -> Response:
    """Register a schema as the subject's next version, or find it there."""
    proposal = read_proposal(body, validate_rules=parts.settings.validates_rules(subject))
    entity = parts.registrar.register(
        subject,
        sight.proposal(subject, proposal),
        who=who,
        normalize=normalize,
        shape=shape,
        dry_run=dry_run,
    )
    return answer(_without_subject(entity))


@router.post("/subjects/{subject}/versions/{version}/tags", openapi_extra=BODY_OF_TAGS)
def change_tags(
    parts: PartsOf,
    subject: SubjectName,
    version: VersionName,
    body: Body,
    who: Who,
    sight: SightOf,
    shape: Shaped,
) -> Response:
    """Register a version again with other tags, metadata or rules."""
    old, latest = parts.reader.definitions(subject, version)
    validates = parts.settings.validates_rules(subject)
    proposal = read_retagging(body, old, latest.rule_set, validate_rules=validates)
    entity = parts.registrar.register(
        subject, sight.proposal(subject, proposal), who=who, shape=shape
    )
    return answer(_without_subject(entity))


@router.get("/subjects/{subject}/versions/{version}")
def read_version(
    parts: PartsOf,
    subject: SubjectName,
    version: VersionName,
    shape: Shaped,
    deleted: Flag = False,
) -> Response:
    """One version of a subject."""
    found = parts.reader.version(subject, version, deleted=deleted, shape=shape)
    return answer(found)


@router.get("/subjects/{subject}/versions/{version}/schema")
def read_version_text(
    parts: PartsOf,
    subject: SubjectName,
    version: VersionName,
    shape: Shaped,
    deleted: Flag = False,
) -> Response:
    """The bare schema of a version."""
    entity = parts.reader.version(subject, version, deleted=deleted, shape=shape)
    return Response(entity["schema"], media_type="application/json")


@router.get("/subjects/{subject}/versions/{version}/referencedby")
def read_referrers(
    parts: PartsOf, subject: SubjectName, version: VersionName, page: Page, deleted: Flag = False
) -> Response:
    """The ids of the schemas that refer to a version."""
    return answer(page_of(parts.reader.referenced_by(subject, version, deleted=deleted), page))


@router.get("/subjects/{subject}/diff/{old}/{new}")
def read_difference(
    parts: PartsOf, subject: SubjectName, old: Annotated[str, Path()], new: Annotated[str, Path()]
) -> Response:
    """What changed from one version to another, field by field (soft-deleted ones included)."""
    versions = read_version_name(old), read_version_name(new)
    return answer(parts.reader.difference(subject, *versions))


@router.get("/subjects/{subject}/metadata")
def read_latest_with_metadata(
    parts: PartsOf,
    subject: SubjectName,
    shape: Shaped,
    keys: Annotated[list[str] | None, Query(alias="key")] = None,
    values: Annotated[list[str] | None, Query(alias="value")] = None,
    deleted: Flag = False,
) -> Response:
    """The latest version whose metadata has all the pairs of key and value."""
    if len(keys or ()) != len(values or ()):
        raise refusals.bad_request("give a `value` for every `key`")
    # Clients encode these twice: once themselves, once as every query.
    pairs = {
        unquote(key): unquote(value) for key, value in zip(keys or (), values or (), strict=True)
    }
    found = parts.reader.latest_with(subject, pairs, deleted=deleted, shape=shape)
    return answer(found)


@router.delete("/subjects/{subject}/versions/{version}")
def delete_version(
    parts: PartsOf,
    subject: SubjectName,
    version: VersionName,
    who: Who,
    permanent: Flag = False,
) -> Response:
    """Delete one version, softly or (after that) for ever."""
    return answer(parts.deleter.delete_version(subject, version, permanent=permanent, who=who))


def _without_subject(entity: Entity) -> Entity:
    return {name: value for name, value in entity.items() if name != "subject"}
