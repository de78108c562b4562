"""The workers behind the routes, made once by the application and found through the request."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, cast

from fastapi import Depends, Request

from headworks._registry.operations.deleter import Deleter
from headworks._registry.operations.reader import Reader
from headworks._registry.operations.registrar import Registrar
from headworks._registry.operations.settings import Settings

__all__ = ["Parts", "PartsOf"]


@dataclass(frozen=True, slots=True)
class Parts:
    """One worker per kind of request."""

    registrar: Registrar
    reader: Reader
    deleter: Deleter
    settings: Settings


async def _parts(request: Request) -> Parts:
    return cast(Parts, request.app.state.parts)


PartsOf = Annotated[Parts, Depends(_parts)]
