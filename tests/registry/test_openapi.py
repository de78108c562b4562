"""The interface as its own description sees it: whatever the OpenAPI page allows to be sent, and
what it does not allow, is answered without a 5xx, in a type and a shape that the page describes.

In the suite each operation gets a handful of requests, on one kind of store;
HEADWORKS_REGISTRY_FUZZ=N gives it N of each sort, on every kind.
"""

from __future__ import annotations

import os
import re
import warnings
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import requests
import urllib3
from hypothesis import HealthCheck, given, settings
from hypothesis.errors import Unsatisfiable

from headworks._registry.service.openapi import ANSWERS
from headworks._server import child_process
from tests.registry.conftest import STORES, new_store, start_on
from tests.registry.rest import Rest

pytestmark = pytest.mark.e2e

EXAMPLES = int(os.environ.get("HEADWORKS_REGISTRY_FUZZ", "0")) or 2
KINDS = STORES if "HEADWORKS_REGISTRY_FUZZ" in os.environ else STORES[-1:]
LIMITS = settings(
    max_examples=EXAMPLES, deadline=None, database=None, suppress_health_check=list(HealthCheck)
)


def tool() -> tuple[ModuleType, list[Any]]:
    """Schemathesis and its checks, imported late: collecting tests takes long enough without it."""
    with warnings.catch_warnings():
        # What the tool's own dependencies have to say about each other is not about us.
        warnings.simplefilter("ignore")
        import schemathesis
        from schemathesis.checks import not_a_server_error
        from schemathesis.specs.openapi import checks
    return schemathesis, [
        not_a_server_error,
        checks.content_type_conformance,
        checks.response_schema_conformance,
        checks.status_code_conformance,
    ]


@pytest.fixture(params=KINDS)
def fuzzed(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[child_process.Service]:
    with start_on(new_store(request, tmp_path)) as running:
        yield running


def test_every_route_says_what_it_answers(rest: Rest) -> None:
    page = rest("GET", "/openapi.json").body
    described = {
        (method, path) for path, operations in page["paths"].items() for method in operations
    }
    assert described - {("get", "/metrics")} == set(ANSWERS)
    undocumented = [one for one in described if not page["paths"][one[1]][one[0]].get("summary")]
    assert not undocumented


def test_the_page_of_the_interface_needs_nothing_from_elsewhere(rest: Rest) -> None:
    answer = urllib3.request("GET", f"{rest.url}/docs", timeout=60)
    assert answer.status == 200
    page = answer.data.decode()
    assert "/openapi.json" in page
    assert "//" not in re.sub(r"<!--.*?-->", "", page)
    parts = re.findall(r'(?:src|href)="([^"]+)"', page)
    assert len(parts) == 3
    for part in parts:
        found = urllib3.request("GET", f"{rest.url}{part}", timeout=60)
        assert found.status == 200
        assert found.data


@pytest.mark.filterwarnings("ignore::Warning")
def test_every_operation_answers_as_described(fuzzed: child_process.Service) -> None:
    schemathesis, checks = tool()
    described = schemathesis.openapi.from_url(f"{fuzzed.url}/openapi.json")
    client = Rest(fuzzed.url)
    answered = 0

    def answers(case: Any) -> None:
        nonlocal answered
        case.call_and_validate(checks=checks, session=session, timeout=60)
        answered += 1

    with requests.Session() as session:
        for found in described.get_all_operations():
            assert isinstance(found, schemathesis.core.result.Ok), found
            # An operation before may have closed the registry to changes.
            client("PUT", "/mode?force=true", {"mode": "READWRITE"})
            client("PUT", "/config", {"compatibility": "NONE"})
            for mode in schemathesis.GenerationMode:
                cases = found.ok().as_strategy(generation_mode=mode)
                # Where everything is allowed, there is nothing to send that is not.
                with suppress(Unsatisfiable):
                    LIMITS(given(case=cases)(answers))()
    client.close()
    assert answered > 40 * EXAMPLES
