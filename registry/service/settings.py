"""/config and /mode: settings and modes, of everything, of a context, of a subject."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query, Response

from headworks._registry.model.definition import JsonObject
from headworks._registry.service.bodies import BODY_OF_CONFIG, BODY_OF_MODE, Body
from headworks._registry.service.dependencies import PartsOf
from headworks._registry.service.guard import SightOf
from headworks._registry.service.parameters import Flag, SubjectName, Who, answer

__all__ = ["router"]

router = APIRouter(tags=["settings"])
InForce = Annotated[Flag, Query(alias="defaultToGlobal")]


@router.get("/config")
def read_global_config(parts: PartsOf) -> Response:
    """The settings of subjects without their own."""
    return answer(parts.settings.config(None))


@router.put("/config", openapi_extra=BODY_OF_CONFIG)
def change_global_config(parts: PartsOf, body: Body, who: Who) -> Response:
    """Change the settings of subjects without their own."""
    return answer(_echo(parts.settings.change_config(None, body, who=who)))


@router.delete("/config")
def drop_global_config(parts: PartsOf, who: Who) -> Response:
    """Go back to the settings of a new registry."""
    return answer(parts.settings.drop_config(None, who=who))


@router.get("/config/{subject}")
def read_config(parts: PartsOf, subject: SubjectName, in_force: InForce = False) -> Response:
    """The settings of a subject."""
    return answer(parts.settings.config(subject, in_force=in_force))


@router.put("/config/{subject}", openapi_extra=BODY_OF_CONFIG)
def change_config(
    parts: PartsOf, subject: SubjectName, body: Body, who: Who, sight: SightOf
) -> Response:
    """Change the settings of a subject."""
    changes = sight.config(subject, body)
    return answer(_echo(parts.settings.change_config(subject, changes, who=who)))


@router.delete("/config/{subject}")
def drop_config(parts: PartsOf, subject: SubjectName, who: Who) -> Response:
    """Take back the settings of a subject."""
    return answer(parts.settings.drop_config(subject, who=who))


@router.get("/mode")
def read_global_mode(parts: PartsOf) -> Response:
    """The mode of subjects without their own."""
    return answer({"mode": parts.settings.mode(None)})


@router.put("/mode", openapi_extra=BODY_OF_MODE)
def change_global_mode(parts: PartsOf, body: Body, who: Who, force: Flag = False) -> Response:
    """Set the mode of subjects without their own."""
    mode = parts.settings.change_mode(None, body.get("mode"), force=force, who=who)
    return answer({"mode": mode})


@router.delete("/mode")
def drop_global_mode(parts: PartsOf, who: Who, recursive: Flag = False) -> Response:
    """Go back to the mode of a new registry."""
    return answer({"mode": parts.settings.drop_mode(None, recursive=recursive, who=who)})


@router.get("/mode/{subject}")
def read_mode(parts: PartsOf, subject: SubjectName, in_force: InForce = False) -> Response:
    """The mode of a subject."""
    return answer({"mode": parts.settings.mode(subject, in_force=in_force)})


@router.put("/mode/{subject}", openapi_extra=BODY_OF_MODE)
def change_mode(
    parts: PartsOf, subject: SubjectName, body: Body, who: Who, force: Flag = False
) -> Response:
    """Set the mode of a subject."""
    mode = parts.settings.change_mode(subject, body.get("mode"), force=force, who=who)
    return answer({"mode": mode})


@router.delete("/mode/{subject}")
def drop_mode(parts: PartsOf, subject: SubjectName, who: Who, recursive: Flag = False) -> Response:
    """Take back the mode of a subject."""
    return answer({"mode": parts.settings.drop_mode(subject, recursive=recursive, who=who)})


def _echo(changes: JsonObject) -> dict[str, object]:
    """An update's answer: what was asked for, under the names it was asked with."""
    names = {"compatibilityLevel": "compatibility"}
    return {names.get(name, name): v for name, v in changes.items() if v is not None}
