"""The operations behind the routes, and the threads that run them, created once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, cast

from fastapi import Depends, Request

from headworks._registry.operations.deleter import Deleter
from headworks._registry.operations.reader import RegistryReader
from headworks._registry.operations.registrar import Registrar
from headworks._registry.operations.settings import SubjectSettings
from headworks._registry.shared_revision import SharedRevision
from headworks._registry.worker_pools import WorkerPool


@dataclass(frozen=True, slots=True)
class Dependencies:
    """One object per kind of operation, the store's revision, and the pools by kind of work."""

    registrar: Registrar
    reader: RegistryReader
    deleter: Deleter
    settings: SubjectSettings
    revision: SharedRevision
    pools: Mapping[str, WorkerPool]


async def dependencies_of(request: Request) -> Dependencies:
    """Return the operations of the application that serves a request."""
    return cast(Dependencies, request.app.state.dependencies)


DependenciesOf = Annotated[Dependencies, Depends(dependencies_of)]
