"""Routes that read their parameters without the framework's dependency injection.

FastAPI solves the dependencies of every request anew, which costs more than most requests do.

Rules:

- A route function is written as for FastAPI, which describes it on the OpenAPI page. Its parameters
  are read by the same functions as FastAPI would call, in the same order, after the guard.
- If a route has a parameter that `_READERS` does not know, FastAPI serves it.
- The function runs in a worker thread, as FastAPI's do.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from typing import Any, cast

from fastapi import Request, Response
from fastapi.routing import APIRoute
from starlette.concurrency import run_in_threadpool

from headworks._registry.service import bodies, dependencies, guard, parameters

_Reader = Callable[[Request, inspect.Parameter], Awaitable[object]]


async def _flag(request: Request, parameter: inspect.Parameter) -> bool:
    found = request.query_params.get(parameter.name)
    return bool(parameter.default) if found is None else parameters.is_true(found)


async def _subject(request: Request, _parameter: inspect.Parameter) -> str:
    return await parameters.subject_name(request, request.path_params["subject"])


async def _version(request: Request, _parameter: inspect.Parameter) -> int | str:
    return parameters.read_version_name(request.path_params["version"])


async def _response_format(request: Request, _parameter: inspect.Parameter) -> object:
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
    parameters.VersionName: _version,
    parameters.ResponseFormatOf: _response_format,
    parameters.Author: _who,
    bodies.Body: _body,
    dependencies.DependenciesOf: _dependencies,
    guard.RequestPermissionsOf: _permissions,
}


class DirectRoute(APIRoute):
    """A route of FastAPI that reads known parameters itself."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """Return the function from a request to its response."""
        declared = inspect.signature(self.endpoint, eval_str=True).parameters.values()
        if any(one.annotation not in _READERS for one in declared):
            return super().get_route_handler()
        readers = [(one.name, _READERS[one.annotation], one) for one in declared]

        async def handle(request: Request) -> Response:
            await guard.guard(request)
            given = {name: await read(request, one) for name, read, one in readers}
            return cast(Response, await run_in_threadpool(self.endpoint, **given))

        return handle
