"""/subjects: registering, looking up, listing, reading, deleting and undeleting versions."""

from __future__ import annotations

from typing import Annotated
from urllib.parse import unquote

from fastapi import APIRouter, Path, Query, Response

from registry.model import refusals
from registry.service.bodies import BODY_OF_SCHEMA, Body, read_proposal
from registry.service.parameters import (
    Flag,
    Form,
    Listed,
    Page,
    SubjectName,
    VersionName,
    Who,
    answer,
    page_of,
    read_version_name,
)
from registry.service.parts import PartsOf

__all__ = ["router"]

router = APIRouter(tags=["subjects"])


@router.get("/subjects")
def list_subjects(
    parts: PartsOf,
    listed: Listed,
    page: Page,
    prefix: Annotated[str, Query(alias="subjectPrefix")] = ":*:",
) -> Response:
    """The names of the subjects."""
    return answer(page_of(parts.reader.subjects(prefix, listed), page))


@router.post("/subjects/{subject}", openapi_extra=BODY_OF_SCHEMA)
def look_up(
    parts: PartsOf,
    subject: SubjectName,
    body: Body,
    normalize: Flag = False,
    deleted: Flag = False,
    form: Form = "",
) -> Response:
    """The version of the subject that has this schema."""
    return answer(
        parts.registrar.look_up(
            subject, read_proposal(body), normalize=normalize, form=form, deleted=deleted
        )
    )


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
def list_versions(parts: PartsOf, subject: SubjectName, listed: Listed, page: Page) -> Response:
    """The version numbers of a subject."""
    return answer(page_of(parts.reader.versions(subject, listed), page))


@router.post("/subjects/{subject}/versions", openapi_extra=BODY_OF_SCHEMA)
def register(
    parts: PartsOf,
    subject: SubjectName,
    body: Body,
    who: Who,
    normalize: Flag = False,
    dry_run: Annotated[Flag, Query()] = False,
    form: Form = "",
) -> Response:
    """Register a schema as the subject's next version, or find it there."""
    entity = parts.registrar.register(
        subject,
        read_proposal(body, validate_rules=parts.settings.validates_rules(subject)),
        who=who,
        normalize=normalize,
        form=form,
        dry_run=dry_run,
    )
    return answer({name: value for name, value in entity.items() if name != "subject"})


@router.get("/subjects/{subject}/versions/{version}")
def read_version(
    parts: PartsOf,
    subject: SubjectName,
    version: VersionName,
    deleted: Flag = False,
    form: Form = "",
) -> Response:
    """One version of a subject."""
    return answer(parts.reader.version(subject, version, deleted=deleted, form=form))


@router.get("/subjects/{subject}/versions/{version}/schema")
def read_version_text(
    parts: PartsOf,
    subject: SubjectName,
    version: VersionName,
    deleted: Flag = False,
    form: Form = "",
) -> Response:
    """The bare schema of a version."""
    entity = parts.reader.version(subject, version, deleted=deleted, form=form)
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
    keys: Annotated[list[str] | None, Query(alias="key")] = None,
    values: Annotated[list[str] | None, Query(alias="value")] = None,
    deleted: Flag = False,
    form: Form = "",
) -> Response:
    """The latest version whose metadata has all the pairs of key and value."""
    if len(keys or ()) != len(values or ()):
        raise refusals.bad_request("give a `value` for every `key`")
    # Clients encode these twice: once themselves, once as every query.
    pairs = {
        unquote(key): unquote(value) for key, value in zip(keys or (), values or (), strict=True)
    }
    found = parts.reader.latest_with(subject, pairs, deleted=deleted, form=form)
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
