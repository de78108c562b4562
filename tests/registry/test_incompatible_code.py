"""The error code of an incompatible schema is Confluent's of 8.2, or the one before it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from headworks._server import child_process
from headworks.compatibility import Level
from headworks.registry_client import IncompatibleSchemaError, RegistryClient
from tests.registry.rest import Rest

pytestmark = pytest.mark.e2e


def test_the_code_of_earlier_versions(tmp_path: Path) -> None:
    command = ["registry", "start", "--listen", "127.0.0.1:0", "--incompatible-code", "409"]
    with child_process.start([*command, "--store", f"sqlite:///{tmp_path / 'r.db'}"]) as running:
        rest = Rest(running.url)
        try:
            for type_ in ("string", "int"):
                reply = rest("POST", "/subjects/s/versions", {"schema": json.dumps(type_)})
        finally:
            rest.close()
        assert (reply.status, reply.code) == (409, 409)
        assert reply.body["findings"][0]["rule"] == "HW002"
        client = RegistryClient(running.url)
        assert client.compatibility("s").level is Level.BACKWARD_TRANSITIVE
        with pytest.raises(IncompatibleSchemaError) as refused:
            client.register("s", '"int"')
        assert [one.rule for one in refused.value.findings] == ["HW002"]
