"""The application: routers, error answers, and the layers in front of them.

fast reads (memoised answers by id)  >  edge (paths, types, sizes)  >  FastAPI routes
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from sqlalchemy.exc import SQLAlchemyError
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp

import headworks
from registry.catalog.deleter import Deleter
from registry.catalog.loader import Loader
from registry.catalog.reader import Reader
from registry.catalog.registrar import Registrar
from registry.catalog.settings import Settings
from registry.fast_reads import FastReads
from registry.model import refusals
from registry.model.refusals import ServiceError
from registry.service import compatibility, schemas, settings, subjects, surroundings
from registry.service.edge import Edge
from registry.service.parameters import answer
from registry.service.parts import Parts
from registry.store import Database

__all__ = ["Limits", "create_app"]

_LOG = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Limits:
    """How large a schema (characters) and a request (bytes) may be."""

    schema: int = 1_000_000
    request: int = 4_000_000


def create_app(database: Database, limits: Limits | None = None) -> ASGIApp:
    """The whole service over an open store; it closes the store when it ends."""
    allowed = limits or Limits()
    loader = Loader()

    @asynccontextmanager
    async def lifespan(_app: FastAPI) -> AsyncIterator[None]:
        async with fast_reads.watching():
            yield
        database.close()

    app = FastAPI(
        title="Headworks schema registry",
        version=headworks.__version__,
        lifespan=lifespan,
        redoc_url=None,
        redirect_slashes=False,
    )
    app.state.largest_body = allowed.request
    app.state.parts = Parts(
        Registrar(database, loader, largest=allowed.schema),
        Reader(database, loader),
        Deleter(database),
        Settings(database),
    )
    for router in (subjects, schemas, compatibility, settings, surroundings):
        app.include_router(router.router)
    app.add_exception_handler(ServiceError, _refused)
    app.add_exception_handler(RequestValidationError, _not_valid)
    app.add_exception_handler(HTTPException, _no_route)
    app.add_exception_handler(SQLAlchemyError, _store_failed)
    app.add_exception_handler(Exception, _broken)
    fast_reads = FastReads(Edge(app, largest_body=allowed.request), database.revision)
    database.on_change(fast_reads.forget)
    return fast_reads


def _refused(_request: Request, error: Exception) -> Response:
    assert isinstance(error, ServiceError)
    return answer(error.as_body(), error.status)


def _not_valid(_request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    reasons = "; ".join(f"{one['loc'][-1]}: {one['msg']}" for one in error.errors())
    return answer({"error_code": 422, "message": reasons}, 422)


def _no_route(_request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    return answer(
        {"error_code": error.status_code, "message": f"HTTP {error.status_code} {error.detail}"},
        error.status_code,
    )


def _store_failed(request: Request, error: Exception) -> Response:
    _LOG.error("%s %s: the store failed: %s", request.method, request.url.path, error)
    return answer(refusals.store_unavailable(str(error.__cause__ or error)).as_body(), 500)


def _broken(_request: Request, _error: Exception) -> Response:
    """A fault of ours; the server logs it, the client learns no more than that."""
    return answer({"error_code": 500, "message": "Internal error: see the registry's log"}, 500)
