"""The application: routers, error responses, and the middleware in front of them.

A request passes FastReads (cached reads by id), AccessLog (metrics and log), ProtocolMiddleware
(paths, web pages, content types, sizes), and then FastAPI: first the guard, then the route. In
front of FastAPI, DirectRoutes serves the busiest routes. The slow ones run in WorkerPools.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from fastapi import Depends, FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from sqlalchemy.exc import SQLAlchemyError
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Scope

import headworks
from headworks._registry.fast_reads import FastReads, MayRead
from headworks._registry.metrics import RegistryMetrics
from headworks._registry.model import refusals
from headworks._registry.model.refusals import ServiceError
from headworks._registry.model.schema_limits import SchemaLimits
from headworks._registry.operations.deleter import Deleter
from headworks._registry.operations.parsed_schemas import SchemaCache
from headworks._registry.operations.reader import RegistryReader
from headworks._registry.operations.registrar import Registrar
from headworks._registry.operations.settings import SubjectSettings
from headworks._registry.service import (
    compatibility,
    contexts_and_health,
    schemas,
    settings,
    subjects,
)
from headworks._registry.service.access_log import AccessLog
from headworks._registry.service.dependencies import Dependencies
from headworks._registry.service.direct_route import DirectRoutes
from headworks._registry.service.guard import guard
from headworks._registry.service.middleware import ProtocolMiddleware
from headworks._registry.service.openapi import describe
from headworks._registry.service.parameters import answer
from headworks._registry.service.swagger_page import serve_page
from headworks._registry.shared_revision import SharedRevision
from headworks._registry.store import RegistryStore
from headworks._registry.store.totals import totals
from headworks._registry.worker_pools import WorkerPool, worker_pools
from headworks._server.security.http.request import authorization_of
from headworks._server.security.http.web_pages import ONLY_ADDRESSES, WebPageRules

if TYPE_CHECKING:
    from headworks._server.security.http.authenticator import HttpAuthenticator

_LOG = logging.getLogger(__name__)
# A request tries the routes in order, so the busiest come first.
_ROUTERS = (compatibility, subjects, schemas, settings, contexts_and_health)
_RETRY_SECONDS = "1"


@dataclass(frozen=True, slots=True)
class ServiceLimits:
    """The maximum sizes of a schema and of a request's body."""

    schema: SchemaLimits = field(default_factory=SchemaLimits)
    request: int = 4_000_000  # bytes of a body


def create_app(
    database: RegistryStore,
    limits: ServiceLimits | None = None,
    *,
    authenticator: HttpAuthenticator | None = None,
    metrics: RegistryMetrics | None = None,
    web_pages: WebPageRules = ONLY_ADDRESSES,
    incompatible_code: int = refusals.INCOMPATIBLE,
) -> ASGIApp:
    """Return the application over an open store; it closes the store when it shuts down.

    Without an `authenticator` everyone may do everything.
    """
    allowed = limits or ServiceLimits()
    pools = worker_pools(database.useful_readers, database.together, database.looking)

    @asynccontextmanager
    async def lifespan(_app: FastAPI) -> AsyncIterator[None]:
        _prepare_routes(app)
        async with fast_reads.watching():
            yield
        for pool in pools.values():
            pool.close()
        if authenticator is not None:
            authenticator.close()
        database.close()

    app = FastAPI(
        title="Headworks schema registry",
        version=headworks.__version__,
        lifespan=lifespan,
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
        dependencies=[Depends(guard)],
    )
    measured = metrics or RegistryMetrics()
    app.state.largest_body = allowed.request
    app.state.authenticator = authenticator
    app.state.metrics = measured
    app.state.incompatible_code = incompatible_code
    app.state.dependencies = _dependencies(database, allowed, pools)
    for router in _ROUTERS:
        app.include_router(router.router)
    describe(app)
    serve_page(app)
    _add_error_answers(app)
    routes = [route for one in _ROUTERS for route in one.router.routes]
    direct = DirectRoutes(app, routes, pools)
    inner = ProtocolMiddleware(direct, web_pages, largest_body=allowed.request)
    fast_reads = FastReads(
        AccessLog(inner, measured), database.revision, _may_read(authenticator, web_pages)
    )
    measured.watch(fast_reads, pools, database.revision, lambda: totals(database))
    database.on_change(fast_reads.clear)
    return fast_reads


def _prepare_routes(app: FastAPI) -> None:
    """Let FastAPI analyze all routes, so that no first request waits for that (0.15 s)."""
    for route in app.routes:
        route.matches({"type": "http", "method": "GET", "path": "/", "headers": []})


def _dependencies(
    database: RegistryStore, limits: ServiceLimits, pools: Mapping[str, WorkerPool]
) -> Dependencies:
    schema_cache = SchemaCache()
    return Dependencies(
        Registrar(database, schema_cache, limits.schema),
        RegistryReader(database, schema_cache),
        Deleter(database),
        SubjectSettings(database),
        SharedRevision(database.revision),
        pools,
    )


def _add_error_answers(app: FastAPI) -> None:
    """Answer every exception in the form that clients of a registry read."""
    app.add_exception_handler(ServiceError, _refused)
    app.add_exception_handler(RequestValidationError, _not_valid)
    app.add_exception_handler(HTTPException, _no_route)
    app.add_exception_handler(SQLAlchemyError, _store_failed)
    app.add_exception_handler(RecursionError, _too_deep)
    app.add_exception_handler(ClientDisconnect, _hung_up)
    app.add_exception_handler(Exception, _broken)


def _may_read(authenticator: HttpAuthenticator | None, web_pages: WebPageRules) -> MayRead | None:
    """Return a check of a read: the request is accepted, and its sender may read a subject."""
    if authenticator is None and web_pages.any_host:
        return None

    def may_read(scope: Scope, subjects: tuple[str, ...]) -> bool:
        if web_pages.refusal(scope["method"], scope["headers"]) is not None:
            return False
        if authenticator is None:
            return True
        permissions = authenticator.cached(authorization_of(scope["headers"]))
        return permissions is not None and permissions.may_read_any(subjects)

    return may_read


async def _refused(request: Request, error: Exception) -> Response:
    assert isinstance(error, ServiceError)
    request.app.state.metrics.count_refusal(error)
    body = error.as_body()
    if error.code == refusals.INCOMPATIBLE:
        body["error_code"] = request.app.state.incompatible_code
    refusal = answer(body, error.status)
    authenticator: HttpAuthenticator | None = request.app.state.authenticator
    if error.status == 401 and authenticator is not None:
        for challenge in authenticator.challenges:
            refusal.headers.append("WWW-Authenticate", challenge)
    if error.status == 503:
        refusal.headers["Retry-After"] = _RETRY_SECONDS
    return refusal


async def _not_valid(_request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    reasons = "; ".join(f"{one['loc'][-1]}: {one['msg']}" for one in error.errors())
    return answer({"error_code": 422, "message": reasons}, 422)


async def _no_route(_request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    return answer(
        {"error_code": error.status_code, "message": f"HTTP {error.status_code} {error.detail}"},
        error.status_code,
    )


async def _store_failed(request: Request, error: Exception) -> Response:
    request.app.state.metrics.count_store_error()
    _LOG.error("%s %s: the store failed: %s", request.method, request.url.path, error)
    return answer(refusals.store_unavailable(str(error.__cause__ or error)).as_body(), 500)


async def _too_deep(_request: Request, _error: Exception) -> Response:
    return answer(refusals.invalid_schema("Invalid schema: it is nested too deeply").as_body(), 422)


async def _hung_up(_request: Request, _error: Exception) -> Response:
    """The client has disconnected: nobody receives this response."""
    return answer({"error_code": 499, "message": "the caller hung up"}, 499)


async def _broken(_request: Request, _error: Exception) -> Response:
    """A fault of the registry: the server logs it, and the client gets no details."""
    return answer({"error_code": 500, "message": "Internal error: see the registry's log"}, 500)
