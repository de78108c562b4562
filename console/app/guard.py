"""Before every route: raw paths, authentication, and the headers of every response.

Rules:

- Every page is authenticated as in the registry. Only `/static` and `/health` are free: they hold
  no data.
- Requests that a web page of another origin may have sent are refused, as `web_pages` describes.
- Every response forbids scripts, styles, frames, and connections from elsewhere.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from headworks._console.app.visibility import ALL_VISIBLE, Visibility
from headworks._server.security.http.request import AuthenticationError, authorization_of
from headworks._server.security.http.web_pages import WebPageRules

if TYPE_CHECKING:
    from headworks._server.security.http.authenticator import HttpAuthenticator

_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
_HEADERS = (
    (b"content-security-policy", _POLICY.encode()),
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"same-origin"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"permissions-policy", b"camera=(), geolocation=(), microphone=(), payment=()"),
)
_TLS_ONLY = (b"strict-transport-security", b"max-age=31536000")
_UNGUARDED_PATHS = ("/static/", "/health")


class ConsoleMiddleware:
    """Wraps the application: raw paths, security headers, and the rules for web pages."""

    def __init__(self, app: ASGIApp, web_pages: WebPageRules) -> None:
        self._app = app
        self._web_pages = web_pages

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer an HTTP request, and pass other scopes on."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        # Names in a path may hold `/`: they stay percent-encoded until a route reads them.
        scope["path"] = scope["raw_path"].decode("ascii", "replace").partition("?")[0]
        free = scope["path"].startswith(_UNGUARDED_PATHS)

        async def with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                caching = b"max-age=3600" if free else b"no-store"
                extra = [*_HEADERS, (b"cache-control", caching)]
                if scope["scheme"] == "https":
                    extra.append(_TLS_ONLY)
                message["headers"] = [*message.get("headers", []), *extra]
            await send(message)

        refused = self._web_pages.refusal(scope["method"], scope["headers"])
        if refused is not None:
            status, reason = refused
            await PlainTextResponse(reason, status)(scope, receive, with_headers)
            return
        await self._app(scope, receive, with_headers)


async def authenticate(request: Request) -> None:
    """Store the visibility of the request's principal. Raises AuthenticationError."""
    authenticator: HttpAuthenticator | None = request.app.state.authenticator
    request.state.visibility = ALL_VISIBLE
    if authenticator is not None:
        permission = await authenticator.authenticate(authorization_of(request.scope["headers"]))
        request.state.visibility = Visibility(permission)
        if not _sees_anything(request.state.visibility):
            raise AuthenticationError(401, "authentication required")


def refusal_response(request: Request, error: Exception) -> Response:
    """Return the response to a request that failed authentication."""
    assert isinstance(error, AuthenticationError)
    refusal = PlainTextResponse(error.message, error.status)
    authenticator: HttpAuthenticator | None = request.app.state.authenticator
    if error.status == 401 and authenticator is not None:
        for challenge in authenticator.challenges:
            refusal.headers.append("WWW-Authenticate", challenge)
    return refusal


def _sees_anything(visibility: Visibility) -> bool:
    """Return whether any page is open to the principal; anonymous clients may have grants."""
    permission = visibility.permission
    if visibility.name is not None or permission.anonymous_reads or permission.grants is None:
        return True
    return any("anonymous" in grant.to for grant in permission.grants)
