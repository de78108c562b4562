"""/subjects: registering, looking up, listing, reading, deleting, and undeleting versions."""

from __future__ import annotations

from dataclasses import replace
from typing import Annotated
from urllib.parse import unquote

from fastapi import APIRouter, Query, Response

from headworks._registry.model import refusals
from headworks._registry.model.definition import JsonObject
from headworks._registry.operations.response_bodies import Entity
from headworks._registry.service.bodies import (
    BODY_OF_SCHEMA,
    BODY_OF_TAGS,
    Body,
    read_proposal,
    read_retagging,
)
from headworks._registry.service.dependencies import Dependencies, DependenciesOf
from headworks._registry.service.direct_route import may_begin_in, runs_in
from headworks._registry.service.guard import RequestPermissionsOf
from headworks._registry.service.parameters import (
    Author,
    Flag,
    NewVersion,
    OldVersion,
    Page,
    Prefix,
    ResponseFormatOf,
    SubjectName,
    VersionFilterOf,
    VersionName,
    answer,
    page_of,
)
from headworks._registry.worker_pools import CHANGES, CHECKS, LOOKUPS, HandedOver

router = APIRouter(tags=["subjects"])
_SHORT = 16_000  # characters of a schema that is parsed in a few milliseconds


@router.get("/subjects")
def list_subjects(
    dependencies: DependenciesOf,
    listed: VersionFilterOf,
    page: Page,
    permissions: RequestPermissionsOf,
    prefix: Prefix = ":*:",
    versions: Flag = False,
) -> Response:
    """The names of the subjects; with `versions`, objects that have the version numbers, too."""
    reader = dependencies.reader
    names = page_of(permissions.subjects(reader.subjects(prefix, listed)), page)
    return answer(reader.subjects_with_versions(names, listed) if versions else names)


@router.post("/subjects/{subject}", openapi_extra=BODY_OF_SCHEMA)
@runs_in(LOOKUPS)
def look_up(
    dependencies: DependenciesOf,
    subject: SubjectName,
    body: Body,
    permissions: RequestPermissionsOf,
    response_format: ResponseFormatOf,
    normalize: Flag = False,
    deleted: Flag = False,
) -> Response:
    """The version of the subject that has this schema."""
    proposal = permissions.proposal(subject, read_proposal(body))
    found = dependencies.registrar.look_up(
        subject, proposal, normalize=normalize, response_format=response_format, deleted=deleted
    )
    return answer(found)


@router.delete("/subjects/{subject}")
@runs_in(CHANGES)
def delete_subject(
    dependencies: DependenciesOf, subject: SubjectName, who: Author, permanent: Flag = False
) -> Response:
    """Delete all versions of a subject, softly or (after that) permanently."""
    return answer(dependencies.deleter.delete_subject(subject, permanent=permanent, who=who))


@router.post("/subjects/{subject}/undelete")
@runs_in(CHANGES)
def undelete_subject(dependencies: DependenciesOf, subject: SubjectName, who: Author) -> Response:
    """Restore the soft-deleted versions of a subject."""
    return answer(dependencies.deleter.undelete_subject(subject, who=who))


@router.get("/subjects/{subject}/versions")
def list_versions(
    dependencies: DependenciesOf,
    subject: SubjectName,
    listed: VersionFilterOf,
    page: Page,
    negative: Annotated[Flag, Query(alias="deletedAsNegative")] = False,
) -> Response:
    """The version numbers of a subject."""
    version_filter = replace(listed, negative=negative)
    return answer(page_of(dependencies.reader.versions(subject, version_filter), page))


def _is_short_and_new(
    *,
    dependencies: Dependencies,
    subject: str,
    body: JsonObject,
    dry_run: bool = False,
    **_: object,
) -> bool:
    """Whether a registration is likely to end in a change, and its look-up is short."""
    text = body.get("schema")
    is_short = isinstance(text, str) and len(text) <= _SHORT and not body.get("references")
    return is_short and not dry_run and not dependencies.registrar.remembers(subject)


@router.post("/subjects/{subject}/versions", openapi_extra=BODY_OF_SCHEMA, response_model=None)
@may_begin_in(CHANGES, _is_short_and_new)
@runs_in(LOOKUPS)
def register(
    dependencies: DependenciesOf,
    subject: SubjectName,
    body: Body,
    who: Author,
    permissions: RequestPermissionsOf,
    response_format: ResponseFormatOf,
    normalize: Flag = False,
    dry_run: Flag = False,
) -> Response | HandedOver:
    """Register a schema as the subject's next version, or return the version that has it."""
    validates = "ruleSet" not in body or dependencies.settings.validates_rules(subject)
    proposal = permissions.proposal(subject, read_proposal(body, validate_rules=validates))
    registrar = dependencies.registrar
    found = registrar.find_registered(
        subject, proposal, normalize=normalize, response_format=response_format
    )
    if found is not None:
        return answer(_without_subject(found))

    def rest() -> Response:
        if dry_run:
            entity = registrar.try_to_add(
                subject, proposal, normalize=normalize, response_format=response_format
            )
        else:
            entity = registrar.add(
                subject, proposal, who=who, normalize=normalize, response_format=response_format
            )
        return answer(_without_subject(entity))

    return dependencies.pools[CHECKS if dry_run else CHANGES].hand_over(rest)


@router.post("/subjects/{subject}/versions/{version}/tags", openapi_extra=BODY_OF_TAGS)
@runs_in(CHANGES)
def change_tags(
    dependencies: DependenciesOf,
    subject: SubjectName,
    version: VersionName,
    body: Body,
    who: Author,
    permissions: RequestPermissionsOf,
    response_format: ResponseFormatOf,
) -> Response:
    """Register a version again with other tags, metadata or rules."""
    old, latest = dependencies.reader.definitions(subject, version)
    validates = dependencies.settings.validates_rules(subject)
    proposal = read_retagging(body, old, latest.rule_set, validate_rules=validates)
    entity = dependencies.registrar.register(
        subject, permissions.proposal(subject, proposal), who=who, response_format=response_format
    )
    return answer(_without_subject(entity))


@router.get("/subjects/{subject}/versions/{version}")
def read_version(
    dependencies: DependenciesOf,
    subject: SubjectName,
    version: VersionName,
    response_format: ResponseFormatOf,
    deleted: Flag = False,
) -> Response:
    """One version of a subject."""
    found = dependencies.reader.version(
        subject, version, deleted=deleted, response_format=response_format
    )
    return answer(found)


@router.get("/subjects/{subject}/versions/{version}/schema")
def read_version_text(
    dependencies: DependenciesOf,
    subject: SubjectName,
    version: VersionName,
    response_format: ResponseFormatOf,
    deleted: Flag = False,
) -> Response:
    """The bare schema of a version."""
    entity = dependencies.reader.version(
        subject, version, deleted=deleted, response_format=response_format
    )
    return Response(entity["schema"], media_type="application/json")


@router.get("/subjects/{subject}/versions/{version}/referencedby")
def read_referrers(
    dependencies: DependenciesOf,
    subject: SubjectName,
    version: VersionName,
    page: Page,
    deleted: Flag = False,
) -> Response:
    """The ids of the schemas that refer to a version."""
    return answer(
        page_of(dependencies.reader.referenced_by(subject, version, deleted=deleted), page)
    )


@router.get("/subjects/{subject}/diff/{old}/{new}")
@runs_in(CHECKS)
def read_difference(
    dependencies: DependenciesOf, subject: SubjectName, old: OldVersion, new: NewVersion
) -> Response:
    """The differences between two versions, field by field (soft-deleted ones included)."""
    return answer(dependencies.reader.difference(subject, old, new))


@router.get("/subjects/{subject}/metadata")
def read_latest_with_metadata(
    dependencies: DependenciesOf,
    subject: SubjectName,
    response_format: ResponseFormatOf,
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
    found = dependencies.reader.latest_with(
        subject, pairs, deleted=deleted, response_format=response_format
    )
    return answer(found)


@router.delete("/subjects/{subject}/versions/{version}")
@runs_in(CHANGES)
def delete_version(
    dependencies: DependenciesOf,
    subject: SubjectName,
    version: VersionName,
    who: Author,
    permanent: Flag = False,
) -> Response:
    """Delete one version, softly or (after that) permanently."""
    return answer(
        dependencies.deleter.delete_version(subject, version, permanent=permanent, who=who)
    )


def _without_subject(entity: Entity) -> Entity:
    return {name: value for name, value in entity.items() if name != "subject"}
