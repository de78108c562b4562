"""The interface as a page: Swagger UI over `/openapi.json`, all of it served from here.

Rule: every file is served by the registry. The page works without the internet, and no third-party
script runs beside a user's credentials.
"""

from __future__ import annotations

from typing import Final

from fastapi import FastAPI
from fastapi.openapi.docs import get_swagger_ui_html
from starlette.requests import Request
from starlette.responses import HTMLResponse
from starlette.staticfiles import StaticFiles

__all__ = ["serve_page"]

_PAGE: Final = "/docs"
_ASSETS: Final = f"{_PAGE}/assets"


def serve_page(app: FastAPI) -> None:
    """Serve Swagger UI at `/docs`, with its files."""
    html = get_swagger_ui_html(
        openapi_url="/openapi.json",
        title=app.title,
        swagger_js_url=f"{_ASSETS}/swagger-ui-bundle.js",
        swagger_css_url=f"{_ASSETS}/swagger-ui.css",
        swagger_favicon_url=f"{_ASSETS}/favicon-32x32.png",
    ).body

    async def page(_request: Request) -> HTMLResponse:
        return HTMLResponse(bytes(html))

    app.add_route(_PAGE, page, methods=["GET"], include_in_schema=False)
    app.mount(_ASSETS, StaticFiles(packages=[("fastapi_swagger", "resources")]))
