"""The interface as a page: Swagger UI over `/openapi.json`, all of it served from here.

Rules:

- Every file is served by the registry. The page works without the internet, and no third-party
  script runs beside a user's credentials.
- The policy of the page allows one inline script, by its digest: the script that starts Swagger UI.
"""

from __future__ import annotations

import base64
import hashlib
import re
from typing import Final

from fastapi import FastAPI
from fastapi.openapi.docs import get_swagger_ui_html
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from starlette.staticfiles import StaticFiles
from starlette.types import Scope

_PAGE: Final = "/docs"
_ASSETS: Final = f"{_PAGE}/assets"
_NO_SNIFFING: Final = {"X-Content-Type-Options": "nosniff"}
_INLINE_SCRIPT: Final = re.compile(rb"<script>(.*?)</script>", re.DOTALL)


def serve_page(app: FastAPI) -> None:
    """Serve Swagger UI at `/docs`, with its files."""
    html = get_swagger_ui_html(
        openapi_url="/openapi.json",
        title=app.title,
        swagger_js_url=f"{_ASSETS}/swagger-ui-bundle.js",
        swagger_css_url=f"{_ASSETS}/swagger-ui.css",
        swagger_favicon_url=f"{_ASSETS}/favicon-32x32.png",
    ).body

    headers = {"Content-Security-Policy": _policy(bytes(html)), **_NO_SNIFFING}

    async def page(_request: Request) -> HTMLResponse:
        return HTMLResponse(bytes(html), headers=headers)

    app.add_route(_PAGE, page, methods=["GET"], include_in_schema=False)
    app.mount(_ASSETS, _PageFiles(packages=[("fastapi_swagger", "resources")]))


class _PageFiles(StaticFiles):
    """The files of the page; browsers take them for what their content types say."""

    async def get_response(self, path: str, scope: Scope) -> Response:
        response = await super().get_response(path, scope)
        response.headers.update(_NO_SNIFFING)
        return response


def _policy(html: bytes) -> str:
    """Return the content security policy of the page."""
    digests = [hashlib.sha256(script).digest() for script in _INLINE_SCRIPT.findall(html)]
    inline = " ".join(f"'sha256-{base64.b64encode(one).decode()}'" for one in digests)
    return (
        f"default-src 'none'; script-src 'self' {inline}; style-src 'self' 'unsafe-inline'; "
        "img-src 'self' data:; connect-src 'self'; form-action 'none'; base-uri 'none'; "
        "frame-ancestors 'none'"
    )
