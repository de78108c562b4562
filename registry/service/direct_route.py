"""Routes that are served without the framework's routing and dependency injection.

FastAPI searches the routes and solves the dependencies of every request anew, which costs more than
most requests do.

Rules:

- A route function is written as for FastAPI, which describes it on the OpenAPI page. Its parameters
  are read by the same functions as FastAPI would call, in the same order, after the guard.
- If a route has a parameter that `_READERS` does not know, FastAPI serves it. It also serves every
  path and method that no direct route has, and so refuses them.
- The function runs in a thread of the pool that `runs_in` names, or else in one of the framework's.
  An application whose `runs_in` marks a route that is not direct does not start: TypeError.
- `may_begin_in` names a pool that may begin the function in its place, to save going there later.
- `may_answer_with` names a coroutine that may answer on the event loop, in place of the function.
- Errors are answered by the application's own handlers.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Iterable, Mapping
from functools import partial
from typing import Any, TypeVar, cast

from fastapi import FastAPI, Request, Response
from fastapi.routing import APIRoute
from starlette.concurrency import run_in_threadpool
from starlette.routing import BaseRoute
from starlette.types import ASGIApp, Receive, Scope, Send

from headworks._registry.operations.response_bodies import DEFAULT_FORMAT
from headworks._registry.service import bodies, dependencies, guard, parameters
from headworks._registry.worker_pools import WorkerPool

_Reader = Callable[[Request, inspect.Parameter], Awaitable[object]]


async def _flag(request: Request, parameter: inspect.Parameter) -> bool:
    if not request.scope["query_string"]:
        return bool(parameter.default)
    found = request.query_params.get(parameter.name)
    return bool(parameter.default) if found is None else parameters.is_true(found)


async def _subject(request: Request, _parameter: inspect.Parameter) -> str:
    return await parameters.subject_name(request, request.path_params["subject"])


async def _context(request: Request, _parameter: inspect.Parameter) -> str:
    return parameters.decoded(request.path_params["context"])


async def _version(request: Request, _parameter: inspect.Parameter) -> int | str:
    return parameters.read_version_name(request.path_params["version"])


async def _version_of_difference(request: Request, parameter: inspect.Parameter) -> int | str:
    return parameters.read_version_name(request.path_params[parameter.name])


async def _response_format(request: Request, _parameter: inspect.Parameter) -> object:
    if not request.scope["query_string"]:
        return DEFAULT_FORMAT
    query = request.query_params
    return await parameters.response_format(
        query.get("format", ""), query.get("referenceFormat", ""), query.getlist("findTags")
    )


async def _body(request: Request, _parameter: inspect.Parameter) -> object:
    return await bodies.json_object(request)


async def _who(request: Request, _parameter: inspect.Parameter) -> str:
    return await parameters.author(request)


async def _dependencies(request: Request, _parameter: inspect.Parameter) -> object:
    return await dependencies.dependencies_of(request)


async def _permissions(request: Request, _parameter: inspect.Parameter) -> object:
    return await guard.request_permissions(request, await dependencies.dependencies_of(request))


_READERS: Mapping[object, _Reader] = {
    parameters.Flag: _flag,
    parameters.SubjectName: _subject,
    parameters.Context: _context,
    parameters.VersionName: _version,
    parameters.OldVersion: _version_of_difference,
    parameters.NewVersion: _version_of_difference,
    parameters.ResponseFormatOf: _response_format,
    parameters.Author: _who,
    bodies.Body: _body,
    dependencies.DependenciesOf: _dependencies,
    guard.RequestPermissionsOf: _permissions,
}


# Attributes of a route function: the name of its pool, and of another one that may begin it.
_POOL, _FIRST_POOL = "registry_pool", "registry_first_pool"
_QUICK = "registry_quick_answer"  # the attribute with the coroutine that may answer
_Function = TypeVar("_Function", bound=Callable[..., Any])
_Handler = Callable[[Request], Awaitable[Response]]


def runs_in(pool: str) -> Callable[[_Function], _Function]:
    """Let a direct route run in the threads of a pool."""

    def mark(function: _Function) -> _Function:
        setattr(function, _POOL, pool)
        return function

    return mark


def may_begin_in(pool: str, when: Callable[..., bool]) -> Callable[[_Function], _Function]:
    """Let the thread of that pool begin the function, if `when` of its arguments says so.

    It does so while the pool is prompt. `when` is called on the event loop.
    """

    def mark(function: _Function) -> _Function:
        setattr(function, _FIRST_POOL, (pool, when))
        return function

    return mark


def may_answer_with(
    quick: Callable[..., Awaitable[Response | None]],
) -> Callable[[_Function], _Function]:
    """Let a coroutine of the same arguments answer, unless it returns None."""

    def mark(function: _Function) -> _Function:
        setattr(function, _QUICK, quick)
        return function

    return mark


class DirectRoutes:
    """Serves the direct ones of the routes, and passes other requests to the application."""

    def __init__(
        self, app: FastAPI, routes: Iterable[BaseRoute], pools: Mapping[str, WorkerPool]
    ) -> None:
        self._app: ASGIApp = app
        self._owner = app
        self._by_method: dict[str, list[tuple[APIRoute, _Handler]]] = {}
        for route in routes:
            handler = _handler(route, pools) if isinstance(route, APIRoute) else None
            if handler is not None:
                assert isinstance(route, APIRoute)
                for method in route.methods or ():
                    self._by_method.setdefault(method, []).append((route, handler))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request; pass other events through."""
        if scope["type"] == "http":
            path = scope["path"]
            for route, handler in self._by_method.get(scope["method"], ()):
                match = route.path_regex.match(path)
                if match is not None:
                    scope["app"], scope["route"] = self._owner, route
                    scope["path_params"] = match.groupdict()
                    await self._serve(handler, Request(scope, receive, send))
                    return
        await self._app(scope, receive, send)

    async def _serve(self, handler: _Handler, request: Request) -> None:
        try:
            response = await handler(request)
        except Exception as error:
            answer = next(
                self._owner.exception_handlers[kind]
                for kind in type(error).__mro__
                if kind in self._owner.exception_handlers
            )
            response = await cast(Awaitable[Response], answer(request, error))
            if answer is self._owner.exception_handlers[Exception]:
                await response(request.scope, request.receive, request._send)
                raise  # the server logs it
        await response(request.scope, request.receive, request._send)


def _handler(route: APIRoute, pools: Mapping[str, WorkerPool]) -> _Handler | None:
    """Return the function from a request to its response; None if FastAPI serves the route."""
    function = route.endpoint
    declared = inspect.signature(function, eval_str=True).parameters.values()
    unknown = [one.name for one in declared if one.annotation not in _READERS]
    if unknown:
        if hasattr(function, _POOL):
            raise TypeError(
                f"{route.path}: runs_in has no effect, since nothing here reads {unknown}; "
                "add readers to _READERS"
            )
        return None
    readers = [(one.name, _READERS[one.annotation], one) for one in declared]
    pool = pools.get(getattr(function, _POOL, ""))
    first_name, when = getattr(function, _FIRST_POOL, ("", bool))
    first = pools.get(first_name)
    quick = getattr(function, _QUICK, None)

    async def handle(request: Request) -> Response:
        await guard.guard(request)
        given = {name: await read(request, one) for name, read, one in readers}
        if pool is None:
            return cast(Response, await run_in_threadpool(function, **given))
        if quick is not None and (answered := await quick(**given)) is not None:
            return cast(Response, answered)
        work = partial(function, **given)
        if first is not None and first.is_prompt and when(**given):
            return await first.run(work, before=True)
        return await pool.run(work)

    return handle
