"""/config and /mode: settings and modes, of everything, of a context, of a subject."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query, Response

from headworks._registry.model.definition import JsonObject
from headworks._registry.service.bodies import BODY_OF_CONFIG, BODY_OF_MODE, Body
from headworks._registry.service.dependencies import DependenciesOf
from headworks._registry.service.direct_route import runs_in
from headworks._registry.service.guard import RequestPermissionsOf
from headworks._registry.service.parameters import Author, Flag, SubjectName, answer
from headworks._registry.worker_pools import CHANGES

router = APIRouter(tags=["settings"])
InForce = Annotated[Flag, Query(alias="defaultToGlobal")]


@router.get("/config")
def read_global_config(dependencies: DependenciesOf) -> Response:
    """The settings of subjects without their own."""
    return answer(dependencies.settings.config(None))


@router.put("/config", openapi_extra=BODY_OF_CONFIG)
@runs_in(CHANGES)
def change_global_config(dependencies: DependenciesOf, body: Body, who: Author) -> Response:
    """Change the settings of subjects without their own."""
    return answer(_as_update(dependencies.settings.change_config(None, body, who=who)))


@router.delete("/config")
@runs_in(CHANGES)
def drop_global_config(dependencies: DependenciesOf, who: Author) -> Response:
    """Go back to the settings of a new registry."""
    return answer(dependencies.settings.drop_config(None, who=who))


@router.get("/config/{subject}")
def read_config(
    dependencies: DependenciesOf, subject: SubjectName, in_force: InForce = False
) -> Response:
    """The settings of a subject."""
    return answer(dependencies.settings.config(subject, in_force=in_force))


@router.put("/config/{subject}", openapi_extra=BODY_OF_CONFIG)
@runs_in(CHANGES)
def change_config(
    dependencies: DependenciesOf,
    subject: SubjectName,
    body: Body,
    who: Author,
    permissions: RequestPermissionsOf,
) -> Response:
    """Change the settings of a subject."""
    changes = permissions.config(subject, body)
    return answer(_as_update(dependencies.settings.change_config(subject, changes, who=who)))


@router.delete("/config/{subject}")
@runs_in(CHANGES)
def drop_config(dependencies: DependenciesOf, subject: SubjectName, who: Author) -> Response:
    """Take back the settings of a subject."""
    return answer(dependencies.settings.drop_config(subject, who=who))


@router.get("/mode")
def read_global_mode(dependencies: DependenciesOf) -> Response:
    """The mode of subjects without their own."""
    return answer({"mode": dependencies.settings.mode(None)})


@router.put("/mode", openapi_extra=BODY_OF_MODE)
@runs_in(CHANGES)
def change_global_mode(
    dependencies: DependenciesOf, body: Body, who: Author, force: Flag = False
) -> Response:
    """Set the mode of subjects without their own."""
    mode = dependencies.settings.change_mode(None, body.get("mode"), force=force, who=who)
    return answer({"mode": mode})


@router.delete("/mode")
@runs_in(CHANGES)
def drop_global_mode(
    dependencies: DependenciesOf, who: Author, recursive: Flag = False
) -> Response:
    """Go back to the mode of a new registry."""
    return answer({"mode": dependencies.settings.drop_mode(None, recursive=recursive, who=who)})


@router.get("/mode/{subject}")
def read_mode(
    dependencies: DependenciesOf, subject: SubjectName, in_force: InForce = False
) -> Response:
    """The mode of a subject."""
    return answer({"mode": dependencies.settings.mode(subject, in_force=in_force)})


@router.put("/mode/{subject}", openapi_extra=BODY_OF_MODE)
@runs_in(CHANGES)
def change_mode(
    dependencies: DependenciesOf, subject: SubjectName, body: Body, who: Author, force: Flag = False
) -> Response:
    """Set the mode of a subject."""
    mode = dependencies.settings.change_mode(subject, body.get("mode"), force=force, who=who)
    return answer({"mode": mode})


@router.delete("/mode/{subject}")
@runs_in(CHANGES)
def drop_mode(
    dependencies: DependenciesOf, subject: SubjectName, who: Author, recursive: Flag = False
) -> Response:
    """Take back the mode of a subject."""
    return answer({"mode": dependencies.settings.drop_mode(subject, recursive=recursive, who=who)})


def _as_update(settings: JsonObject) -> dict[str, object]:
    """The settings after an update, under the names of an update."""
    names = {"compatibilityLevel": "compatibility"}
    return {names.get(name, name): v for name, v in settings.items()}
