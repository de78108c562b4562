"""Which requests are refused because a web page may have sent them."""

from __future__ import annotations

import pytest

from headworks._server.security.http.options import SecurityOptions
from headworks._server.security.http.web_pages import WebPageRules, read_host_names
from headworks.errors import UsageError

pytestmark = pytest.mark.unit

OPEN = WebPageRules()
NAMED = WebPageRules(host_names=frozenset({"registry.internal"}))
ANY = WebPageRules(any_host=True)


def status(rules: WebPageRules, method: str, host: str | None, **headers: str) -> int | None:
    sent = [] if host is None else [(b"host", host.encode())]
    sent += [(name.replace("_", "-").encode(), value.encode()) for name, value in headers.items()]
    refused = rules.refusal(method, sent)
    return None if refused is None else refused[0]


@pytest.mark.parametrize(
    "host",
    ["127.0.0.1:8081", "10.0.0.5", "[::1]:8081", "localhost", "LOCALHOST:8081", None],
)
def test_addresses_and_localhost_are_answered(host: str | None) -> None:
    for method in ("GET", "POST", "DELETE"):
        assert status(OPEN, method, host) is None


@pytest.mark.parametrize(
    "host",
    ["evil.example", "evil.example:8081", "127.0.0.1.evil.example", "localhost.evil.example", "x"],
)
def test_other_names_are_answered_only_if_the_operator_gives_them(host: str) -> None:
    for method in ("GET", "POST", "DELETE"):
        assert status(OPEN, method, host) == 421
        assert status(NAMED, method, host) == 421
        assert status(ANY, method, host) is None
    assert status(NAMED, "GET", "Registry.internal:8081") is None


@pytest.mark.parametrize(
    ("site", "refused"),
    [("cross-site", 403), ("same-site", 403), ("nonsense", 403), ("same-origin", None)],
)
@pytest.mark.parametrize("rules", [OPEN, ANY])
def test_a_browser_says_where_a_page_is_from(
    rules: WebPageRules, site: str, refused: int | None
) -> None:
    for method in ("POST", "PUT", "DELETE", "PATCH"):
        assert status(rules, method, "127.0.0.1:8081", sec_fetch_site=site) == refused
    assert status(rules, "GET", "127.0.0.1:8081", sec_fetch_site=site) is None


@pytest.mark.parametrize(
    ("origin", "refused"),
    [
        ("http://10.0.0.5:8081", None),
        ("http://10.0.0.5:3000", 403),
        ("http://evil.example", 403),
        ("null", 403),
        ("http://registry.internal", None),
    ],
)
def test_without_that_the_origin_decides(origin: str, refused: int | None) -> None:
    assert status(NAMED, "POST", "10.0.0.5:8081", origin=origin) == refused
    assert status(NAMED, "GET", "10.0.0.5:8081", origin=origin) is None


def test_which_servers_answer_under_every_name() -> None:
    assert not SecurityOptions().web_pages.any_host
    assert not SecurityOptions(anonymous_reads=True).web_pages.any_host
    assert SecurityOptions(insecure=True).web_pages.any_host
    assert SecurityOptions(jwks="https://idp").web_pages.any_host
    named = SecurityOptions(insecure=True, host_names=frozenset({"a"})).web_pages
    assert not named.any_host


def test_host_names_are_parsed_and_invalid_ones_are_refused() -> None:
    assert read_host_names("A.example, b") == {"a.example", "b"}
    assert read_host_names("") == frozenset()
    for wrong in ("http://a", "a:80", "a/b", "*.a", "-"):
        with pytest.raises(UsageError, match="is not a host name"):
            read_host_names(wrong)
