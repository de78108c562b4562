"""The operations behind the routes, created once by the application."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, cast

from fastapi import Depends, Request

from headworks._registry.operations.deleter import Deleter
from headworks._registry.operations.reader import RegistryReader
from headworks._registry.operations.registrar import Registrar
from headworks._registry.operations.settings import SubjectSettings


@dataclass(frozen=True, slots=True)
class Dependencies:
    """One object per kind of operation."""

    registrar: Registrar
    reader: RegistryReader
    deleter: Deleter
    settings: SubjectSettings


async def dependencies_of(request: Request) -> Dependencies:
    """Return the operations of the application that serves a request."""
    return cast(Dependencies, request.app.state.dependencies)


DependenciesOf = Annotated[Dependencies, Depends(dependencies_of)]
