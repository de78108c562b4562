"""The page of a subject's users: its deprecated versions, and who still uses them."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from headworks._audit.store import AuditStore
from headworks._cli.schema import schema_app
from headworks._server import child_process
from headworks.registry_client import RegistryClient
from tests.audit.test_usage import DAY, add, increment, read, wrote
from tests.console.fetch import Fetch
from tests.registry.conftest import start_registry

pytestmark = pytest.mark.e2e

TEXT = '{"type": "record", "name": "T", "fields": [{"name": "a", "type": "int"}]}'
NEWER = TEXT.replace("}]}", '}, {"name": "b", "type": "int", "default": 0}]}')


def test_a_version_is_deprecated_and_its_users_are_listed(tmp_path: Path) -> None:
    with start_registry(tmp_path) as registry:
        client = RegistryClient(registry.url)
        first, second = (client.register("t-value", text) for text in (TEXT, NEWER))
        store_url = f"sqlite:///{tmp_path / 'audit.db'}"
        store = AuditStore(store_url)
        add(
            store,
            increment("producer", wrote(second.id), at=DAY, application="shop"),
            increment("consumer:billing", read(second.id, first.id), at=DAY, application="bills"),
        )
        store.close()
        places = ["--registry", registry.url, "--audit-store", store_url]
        places += ["--bootstrap", "127.0.0.1:1"]
        marked = ["deprecate", "t-value", "1", "--registry", registry.url]
        with child_process.start(["console", "start", "--listen", "127.0.0.1:0", *places]) as page:
            fetch = Fetch(page.url)

            def run(*more: str) -> str:
                done = CliRunner().invoke(schema_app, [*marked, *more], catch_exceptions=False)
                assert done.exit_code == 0
                return fetch("/schemas/t-value/usage").body

            assert "Deprecated: use version 2" in run("--reason", "use version 2")
            found = fetch("/schemas/t-value/usage.json").json["data"]["versions"]
            old = next(one for one in found if one["version"] == 1)
            assert old["deprecated"] == "use version 2"
            assert [one["tier"] for one in old["read_by"]] == ["consumer:billing"]
            assert "group billing (bills)" in run("--reason", "use version 2")
            assert "Deprecated" not in run("--undo")
