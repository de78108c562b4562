"""No request gets a 5xx, which clients would repeat, and every answer is JSON."""

from __future__ import annotations

import json
from collections.abc import Iterator
from urllib.parse import quote, urlencode

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from headworks._server import child_process
from tests.registry.rest import Rest

pytestmark = pytest.mark.e2e

Request = tuple[str, tuple[str, ...]]

words = st.one_of(
    st.text(max_size=8),
    st.sampled_from(["s", "latest", "-1", "1", "0", "99999999999", ":.c:s", ":*:", ":.c:", "é/ü"]),
)
segments = st.one_of(
    st.sampled_from(
        ["subjects", "schemas", "ids", "versions", "config", "mode", "compatibility", "contexts"]
    ),
    st.sampled_from(["guids", "metadata", "referencedby", "schema", "audit", "undelete"]),
    words,
)


def request(method: str, *parts: str | st.SearchStrategy[str]) -> st.SearchStrategy[Request]:
    """A method and a path; parts are literal, or drawn."""
    drawn = [st.just(part) if isinstance(part, str) else part for part in parts]
    return st.tuples(st.just(method), st.tuples(*drawn))


methods = st.sampled_from(["GET", "POST", "PUT", "DELETE", "PATCH"])
requests = st.one_of(
    st.tuples(methods, st.lists(segments, max_size=5).map(tuple)),
    request("POST", "subjects", words, "versions"),
    request("POST", "subjects", words),
    request("POST", "subjects", words, "undelete"),
    request("DELETE", "subjects", words),
    request("DELETE", "subjects", words, "versions", words),
    request("GET", "subjects", words, "versions", words),
    request("GET", "subjects", words, "versions", words, "referencedby"),
    request("GET", "subjects", words, "metadata"),
    request("POST", "compatibility", "subjects", words, "versions", words),
    request("POST", "compatibility", "subjects", words, "versions"),
    request("PUT", "config", words),
    request("GET", "config", words),
    request("PUT", "mode", words),
    request("DELETE", "mode", words),
    request("GET", "schemas", "ids", words),
    request("GET", "schemas", "ids", words, "versions"),
    request("GET", "schemas"),
    request("GET", "audit"),
    request("DELETE", "contexts", words),
)
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=6,
)
avro_like = st.recursive(
    st.sampled_from(["int", "string", "null", "Nope", "", "record"]),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.fixed_dictionaries(
            {"type": st.one_of(inner, st.sampled_from(["array", "map", "enum", "fixed"]))},
            optional={
                "name": st.text(max_size=4),
                "fields": st.lists(inner, max_size=2),
                "items": inner,
                "values": inner,
                "symbols": st.lists(st.text(max_size=3), max_size=3),
                "size": st.integers(),
                "default": json_values,
                "logicalType": st.sampled_from(["decimal", "uuid", "date"]),
                "precision": json_values,
                "aliases": json_values,
                "namespace": json_values,
            },
        ),
    ),
    max_leaves=8,
)
members = st.fixed_dictionaries(
    {},
    optional={
        "schema": st.one_of(avro_like.map(json.dumps), json_values),
        "schemaType": st.sampled_from(["AVRO", "JSON", None, 3]),
        "references": st.one_of(
            json_values,
            st.lists(
                st.fixed_dictionaries({"name": words, "subject": words, "version": json_values}),
                max_size=2,
            ),
        ),
        "metadata": st.one_of(json_values, st.fixed_dictionaries({"properties": json_values})),
        "ruleSet": st.one_of(json_values, st.fixed_dictionaries({"domainRules": json_values})),
        "id": json_values,
        "version": json_values,
        "compatibility": st.one_of(json_values, st.sampled_from(["NONE", "full"])),
        "policy": json_values,
        "alias": st.one_of(json_values, words),
        "normalize": json_values,
        "mode": st.one_of(json_values, st.sampled_from(["IMPORT", "READWRITE"])),
        "defaultMetadata": json_values,
    },
)
bodies = st.one_of(st.none(), st.binary(max_size=20), members.map(lambda m: json.dumps(m).encode()))
_NAMES = (
    "deleted deletedOnly offset limit format subject permanent verbose subjectPrefix normalize "
    "key value after force dry_run fetchMaxId"
)
queries = st.dictionaries(st.sampled_from(_NAMES.split()), words, max_size=3)


@pytest.fixture(scope="module")
def fuzzed(own_registry: child_process.Service) -> Iterator[Rest]:
    client = Rest(own_registry.url)
    yield client
    client.close()


@settings(
    max_examples=250, deadline=None, suppress_health_check=[HealthCheck.too_slow], database=None
)
@given(
    asked=requests,
    query=queries,
    body=bodies,
    accept=st.sampled_from([None, None, None, "*/*", "application/json", "x"]),
)
def test_no_request_makes_a_server_error(
    fuzzed: Rest,
    asked: Request,
    query: dict[str, str],
    body: bytes | None,
    accept: str | None,
) -> None:
    method, path = asked
    where = "/" + "/".join(quote(part, safe=":*.-", errors="replace") for part in path)
    if query:
        where += "?" + urlencode(query, errors="replace")
    headers = {"Accept": accept} if accept else {}
    reply = fuzzed(method, where, raw=body, headers=headers)
    assert reply.status < 500, (method, where, body, reply.body)
    if reply.status >= 400:
        assert isinstance(reply.code, int)
        assert reply.body["message"]
