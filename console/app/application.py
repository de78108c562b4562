"""The application: every screen under its path, and under the same path with `.json`.

Rule: Starlette and nothing above it. The console has no request bodies to validate and no API to
describe, and a larger framework would take longer to import than the rest of the console.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.middleware.gzip import GZipMiddleware
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute, Mount, Route
from starlette.staticfiles import StaticFiles
from starlette.types import ASGIApp

from headworks._console.app.guard import ConsoleMiddleware, authenticate, refusal_response
from headworks._console.app.page import Page, respond
from headworks._console.app.request import (
    ActionForbiddenError,
    PageNotFoundError,
    PageRequest,
    read_form,
)
from headworks._console.app.routes import AS_CSV, SCREENS, WITH_FORM
from headworks._console.app.view_log import ViewLog
from headworks._console.app.visibility import ALL_VISIBLE
from headworks._console.sources import Sources
from headworks._server.security.http.request import AuthenticationError
from headworks._server.security.http.web_pages import ONLY_ADDRESSES, WebPageRules
from headworks.errors import HeadworksError, RefusedError, UnreachableError, UsageError

if TYPE_CHECKING:
    from headworks._server.security.http.authenticator import HttpAuthenticator

_STATIC = Path(__file__).parent.parent / "static"
_LOG = logging.getLogger(__name__)
Screen = Callable[[PageRequest], Page]


@dataclass(frozen=True, slots=True)
class ProblemView:
    """The reason why a page cannot be shown, and the fix."""

    message: str
    fix: str | None


def create_app(
    sources: Sources,
    *,
    authenticator: HttpAuthenticator | None = None,
    web_pages: WebPageRules = ONLY_ADDRESSES,
) -> ASGIApp:
    """Return the console over its sources; its lifespan starts and stops their threads.

    Without `authenticator`, everyone sees everything.
    """

    @asynccontextmanager
    async def lifespan(_app: Starlette) -> AsyncIterator[None]:
        sources.start()
        yield
        sources.stop()
        if authenticator is not None:
            authenticator.close()

    routes: list[BaseRoute] = [
        Mount("/static", StaticFiles(directory=_STATIC), name="static"),
        Route("/health", _health),
    ]
    for path, screen in SCREENS.items():
        endpoint = _endpoint(sources, screen)
        methods = ["GET", "HEAD", "POST"] if path in WITH_FORM else ["GET", "HEAD"]
        # The longer path first: a name at the end of the other would take the `.json` for its own.
        forms = ["/home.json" if path == "/" else f"{path}.json", path]
        if path in AS_CSV:
            forms.insert(0, f"{path}.csv")
        routes += [Route(one, endpoint, methods=methods) for one in forms]
    app = Starlette(
        routes=routes,
        lifespan=lifespan,
        exception_handlers={
            AuthenticationError: refusal_response,
            HTTPException: _http_error,
            Exception: _internal_error,
        },
    )
    app.router.redirect_slashes = False
    sources.guarded = authenticator is not None
    app.state.authenticator = authenticator
    app.state.view_log = ViewLog()
    return ConsoleMiddleware(GZipMiddleware(app, compresslevel=6), web_pages)


def _endpoint(
    sources: Sources, screen: Screen
) -> Callable[[Request], Coroutine[Any, Any, Response]]:
    def answer(request: Request, form: dict[str, str]) -> Response:
        try:
            page = screen(PageRequest(request, sources, request.state.visibility, form))
        except HeadworksError as error:
            page = _problem(error)
        return respond(request, page)

    async def endpoint(request: Request) -> Response:
        await authenticate(request)
        try:
            form = await read_form(request) if request.method == "POST" else {}
        except HeadworksError as error:
            return respond(request, _problem(error))
        return await run_in_threadpool(answer, request, form)

    return endpoint


def _problem(error: HeadworksError) -> Page:
    """Return the page of an error."""
    if isinstance(error, PageNotFoundError):
        status, title = 404, "Not found"
    elif isinstance(error, ActionForbiddenError):
        status, title = 403, "Forbidden"
    elif isinstance(error, UnreachableError | RefusedError):
        status, title = 503, "Unavailable"
    else:
        status, title = 400, "Bad request"
    view = ProblemView(error.message, error.fix)
    return Page("problem.html", title, view, "headworks --help", status=status)


async def _health(_request: Request) -> Response:
    return JSONResponse({"status": "serving"})


def _http_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    request.state.visibility = ALL_VISIBLE
    if error.status_code == 405:
        problem: HeadworksError = UsageError(
            f"this page of the console only reads, and refuses {request.method}"
        )
    else:
        problem = PageNotFoundError(f"there is no page {request.url.path}", fix="start at /")
    return respond(request, replace(_problem(problem), status=error.status_code))


def _internal_error(request: Request, error: Exception) -> Response:
    """Log an unexpected error, and answer 500."""
    _LOG.error("%s failed", request.url.path, exc_info=error)
    return JSONResponse({"error": "internal error: see the console's log"}, 500)
