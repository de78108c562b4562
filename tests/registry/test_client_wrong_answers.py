"""RegistryClient and `schema import` at the address of some other web server.

Law: whatever JSON a server answers, each method returns a value or raises a HeadworksError.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from headworks._ci.registry_contents import read_contents
from headworks._cli.main import command_line
from headworks.errors import HeadworksError, RefusedError
from headworks.registry_client import RegistryClient, SubjectVersion
from tests.registry.prepared_server import prepared_server
from tests.registry.rest import record, text_of

pytestmark = pytest.mark.e2e

TEXT = text_of(record("id:long"))
QUESTIONS: dict[str, Callable[[RegistryClient], object]] = {
    "schema_text": lambda client: client.schema_text(1),
    "register": lambda client: client.register("s", TEXT),
    "lookup": lambda client: client.lookup("s", TEXT),
    "latest": lambda client: client.latest("s"),
    "version": lambda client: client.version("s", 1),
    "versions": lambda client: client.versions("s"),
    "version_numbers": lambda client: client.version_numbers("s"),
    "uses": lambda client: client.uses(1),
    "import_version": lambda client: client.import_version(SubjectVersion("s", 1, 1, TEXT)),
    "history": lambda client: client.history("s"),
    "list_versions": lambda client: client.list_versions(),
    "list_objects": lambda client: client.list_objects(""),
    "subjects": lambda client: client.subjects(),
    "compatibility": lambda client: client.compatibility("s"),
    "mode": lambda client: client.mode("s"),
    "deprecated_versions": lambda client: client.deprecated_versions("s"),
    "check": lambda client: client.check("s", TEXT),
    "read_contents": read_contents,
}
NAMES = (
    *("subject", "version", "id", "schema", "versions", "mode", "compatibilityLevel", "policy"),
    *("is_compatible", "findings", "messages", "references", "metadata", "deprecatedVersions"),
    *("compatibilityGroup", "defaultMetadata", "error_code", "message", "aliases", "properties"),
)
LEAVES: st.SearchStrategy[Any] = st.one_of(
    st.none(), st.booleans(), st.integers(-1, 3), st.sampled_from(("", "s", "FULL", "IMPORT"))
)
ANSWERS: st.SearchStrategy[Any] = st.recursive(
    LEAVES,
    lambda inner: st.one_of(
        st.lists(inner, max_size=2),
        st.dictionaries(st.sampled_from(NAMES), inner, max_size=6),
    ),
    max_leaves=8,
)
Say = Callable[[int, object], None]


@pytest.fixture(scope="module")
def server() -> Iterator[tuple[str, Say]]:
    said: list[tuple[int, object]] = [(200, {})]

    def say(status: int, answer: object) -> None:
        said[0] = status, answer

    with prepared_server(lambda _: said[0]) as (url, _):
        yield url, say


@pytest.mark.parametrize("answer", [{}, "a", 1, None, ["a"], [{}], {"id": "x"}, {"schema": 3}])
@pytest.mark.parametrize("asked", ["schema_text", "register", "version", "mode", "check"])
def test_an_answer_of_another_server_is_refused_with_its_address_and_the_setting(
    server: tuple[str, Say], asked: str, answer: object
) -> None:
    url, say = server
    say(200, answer)
    with pytest.raises(RefusedError, match="does not answer as a schema registry does") as refused:
        QUESTIONS[asked](RegistryClient(url))
    assert url in refused.value.message
    assert "headworks config show" in (refused.value.fix or "")


def test_an_answer_that_is_nested_too_deeply_is_refused(server: tuple[str, Say]) -> None:
    url, say = server
    say(200, b"[" * 200_000)
    with pytest.raises(RefusedError, match="is not a schema registry"):
        RegistryClient(url).subjects()


def test_a_gateway_s_refusal_keeps_its_status(server: tuple[str, Say]) -> None:
    url, say = server
    say(403, {"error_code": "FORBIDDEN", "message": "no", "findings": "x"})
    with pytest.raises(RefusedError, match=r"refused \(403\): no") as refused:
        RegistryClient(url).subjects()
    assert (refused.value.status, refused.value.code) == (403, 403)


@settings(max_examples=150, deadline=None)
@given(
    asked=st.sampled_from(sorted(QUESTIONS)),
    status=st.sampled_from((200, 200, 200, 404, 409)),
    answer=ANSWERS,
)
def test_whatever_a_server_answers_there_is_a_value_or_an_error(
    server: tuple[str, Say], asked: str, status: int, answer: object
) -> None:
    url, say = server
    say(status, answer)
    with suppress(HeadworksError):
        QUESTIONS[asked](RegistryClient(url, attempts=1))


@pytest.mark.parametrize("schema", ['syntax = "proto3"; message A {}', '"string"'])
def test_a_schema_is_shown_whatever_its_language(server: tuple[str, Say], schema: str) -> None:
    url, say = server
    say(200, {"subject": "s", "version": 1, "id": 1, "schema": schema})
    line = ["schema", "show", "s", "--registry", url]
    done = CliRunner().invoke(command_line(), line)
    assert done.exit_code == 0, done.output
    assert done.stdout == f"{schema}\n"
    done = CliRunner().invoke(command_line(), [*line, "--format", "json"])
    shown = json.loads(done.stdout)["schema"]
    assert shown == (schema if "proto3" in schema else json.loads(schema))
