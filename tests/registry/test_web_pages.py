"""A web page in a real browser cannot write to a registry, or read it, behind its user's back."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, sync_playwright

from headworks._server import child_process
from tests.console.browser import ARGUMENTS, PATIENCE, chromium
from tests.registry.rest import Rest, fresh, record, text_of

pytestmark = pytest.mark.e2e

# The browser resolves this name to loopback, as an attacker's name server would.
EVIL = "evil.example"
PAGE = b"<!doctype html><title>kittens</title>"


class Site(ThreadingHTTPServer):
    """A site of the attacker's; it also notes the POST requests that reach it."""

    def __init__(self) -> None:
        self.posted: list[tuple[str, dict[str, str], bytes]] = []
        super().__init__(("127.0.0.1", 0), _Handler)


class _Handler(BaseHTTPRequestHandler):
    server: Site

    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/html")
        self.end_headers()
        self.wfile.write(PAGE)

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        headers = {name.lower(): value for name, value in self.headers.items()}
        self.server.posted.append((self.path, headers, body))
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture(scope="module")
def site() -> Iterator[Site]:
    with Site() as running:
        thread = threading.Thread(target=running.serve_forever, args=(0.05,))
        thread.start()
        yield running
        running.shutdown()
        thread.join()


@pytest.fixture(scope="module")
def evil_browser() -> Iterator[Browser]:
    rules = f"--host-resolver-rules=MAP {EVIL} 127.0.0.1"
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=chromium(), args=[*ARGUMENTS, rules], timeout=PATIENCE
        )
        try:
            yield browser
        finally:
            browser.close()


@pytest.fixture
def page(evil_browser: Browser) -> Iterator[Page]:
    context = evil_browser.new_context()
    context.set_default_timeout(PATIENCE)
    yield context.new_page()
    context.close()


@pytest.fixture
def rest(registry: child_process.Service) -> Iterator[Rest]:
    client = Rest(registry.url)
    yield client
    client.close()


# Requests that a browser sends to another origin without asking that origin first.
SIMPLE = {
    "no content type": "body: new Blob([body])",
    "text": "body",
    "form": "body: new URLSearchParams({a: body})",
    "nothing": "",
}


def send(page: Page, url: str, body: str, options: str) -> None:
    """Send a request as the page would; its answer is opaque to the page."""
    page.evaluate(
        "async ([url, body]) => { await fetch(url, {method: 'POST', mode: 'no-cors',"
        f" credentials: 'include', {options}}}); }}",
        [url, body],
    )


def schema_body() -> str:
    return json.dumps({"schema": text_of(record("a:int"))})


@pytest.mark.parametrize("origin", [EVIL, "127.0.0.1"])  # cross-site, and another port
@pytest.mark.parametrize("form", SIMPLE)
def test_a_page_cannot_write_to_the_registry(
    registry: child_process.Service, rest: Rest, site: Site, page: Page, origin: str, form: str
) -> None:
    subject, hidden = fresh("page"), fresh("page")
    assert rest.register(hidden, record("a:int")).status == 200
    assert rest("DELETE", f"/subjects/{hidden}").status == 200
    page.goto(f"http://{origin}:{site.server_port}/")
    before = len(site.posted)
    send(page, f"http://127.0.0.1:{site.server_port}/control", schema_body(), SIMPLE[form])
    assert len(site.posted) == before + 1, "the browser does send such a request"
    send(page, f"{registry.url}/subjects/{subject}/versions", schema_body(), SIMPLE[form])
    send(page, f"{registry.url}/subjects/{hidden}/undelete", schema_body(), SIMPLE[form])
    listed = rest("GET", "/subjects").body
    assert subject not in listed
    assert hidden not in listed


def test_a_page_cannot_reach_the_registry_under_a_name_of_its_own(
    registry: child_process.Service, rest: Rest, page: Page
) -> None:
    """DNS rebinding: the page's own name now leads to the registry, so that it may read it."""
    subject = fresh("rebound")
    assert rest.register(subject, record("secret:int")).status == 200
    port = registry.url.rpartition(":")[2]
    for path in ("/subjects", "/schemas/ids/1"):
        answer = page.goto(f"http://{EVIL}:{port}{path}")
        assert answer is not None
        assert answer.status == 421
        assert subject not in answer.text()
        assert "--host-name" in answer.json()["message"]
    taken = page.evaluate(
        "async (path) => (await fetch(path, {method: 'DELETE'})).status", f"/subjects/{subject}"
    )
    assert taken == 421
    assert subject in rest("GET", "/subjects").body


def test_the_operator_names_the_registry(tmp_path: Path) -> None:
    """As behind a proxy; a name that is given is the only one, on any network."""
    command = ["registry", "start", "--listen", "127.0.0.1:0", "--insecure"]
    command += ["--store", f"sqlite:///{tmp_path / 'r.db'}", "--host-name", "registry.internal"]
    with child_process.start(command) as running:
        client = Rest(running.url)
        assert client.register("s", record("a:int")).status == 200
        for path in ("/subjects", "/schemas/ids/1", "/schemas/ids/1"):  # the last from memory
            assert client("GET", path, headers={"Host": "registry.internal"}).status == 200
            assert client("GET", path, headers={"Host": "evil.example"}).code == 421


def test_the_registrys_own_page_works(
    registry: child_process.Service, rest: Rest, page: Page
) -> None:
    """Swagger UI sends requests from the registry's own origin, under a strict policy."""
    wrong: list[str] = []
    page.on("console", lambda said: wrong.append(said.text) if said.type == "error" else None)
    page.on("pageerror", lambda error: wrong.append(str(error)))
    answer = page.goto(f"{registry.url}/docs")
    assert answer is not None
    assert "default-src 'none'" in answer.headers["content-security-policy"]
    assert answer.headers["x-content-type-options"] == "nosniff"
    page.get_by_text("/subjects/{subject}/versions", exact=True).first.wait_for()
    subject = fresh("own-page")
    status = page.evaluate(
        "async ([path, body]) => (await fetch(path, {method: 'POST', body, headers:"
        " {'Content-Type': 'application/vnd.schemaregistry.v1+json'}})).status",
        [f"/subjects/{subject}/versions", schema_body()],
    )
    assert status == 200
    assert subject in rest("GET", "/subjects").body
    assert not wrong
