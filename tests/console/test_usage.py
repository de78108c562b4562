"""The page of a subject's users: its deprecated versions, and who still uses them."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from headworks._audit.store import AuditStore
from headworks._cli.schema import schema_app
from headworks._server import child_process
from headworks._server.security.users import new_secret, write_users
from headworks.registry_client import RegistryClient
from tests.audit.test_usage import DAY, add, increment, read, wrote
from tests.console.fetch import Fetch
from tests.console.test_guarded import credentials
from tests.registry.conftest import start_registry
from tests.waiting import until

pytestmark = pytest.mark.e2e

TEXT = '{"type": "record", "name": "T", "fields": [{"name": "a", "type": "int"}]}'
NEWER = TEXT.replace("}]}", '}, {"name": "b", "type": "int", "default": 0}]}')


GRANTS = """
[[grants]]
to = ["ada"]
roles = ["reader"]
prefix = "t"

[[grants]]
to = ["ada"]
roles = ["reader"]
on = ["groups"]
prefix = "billing"
"""


def test_a_hidden_group_is_neither_named_nor_denied(tmp_path: Path) -> None:
    users, access = tmp_path / "users", tmp_path / "access.toml"
    write_users(users, {"ada": new_secret("ada-password")})
    access.write_text(GRANTS, encoding="utf-8")
    with start_registry(tmp_path) as registry:
        first = RegistryClient(registry.url).register("t-value", TEXT)
        store_url = f"sqlite:///{tmp_path / 'audit.db'}"
        store = AuditStore(store_url)
        add(
            store,
            *(
                increment(f"consumer:{group}", read(first.id, first.id), at=DAY, application=name)
                for group, name in (("billing", "bills"), ("secret-risk", "risk-models"))
            ),
        )
        store.close()
        places = ["--registry", registry.url, "--audit-store", store_url]
        places += ["--bootstrap", "127.0.0.1:1", "--users", str(users), "--access", str(access)]
        with child_process.start(["console", "start", "--listen", "127.0.0.1:0", *places]) as page:
            fetch = Fetch(page.url)
            ada = credentials("ada")
            on_page = "/schemas/t-value/versions"
            until(lambda: fetch(f"{on_page}.json", headers=ada).json["data"]["users"])
            for path in (on_page, f"{on_page}.json", "/schemas/t-value/usage"):
                body = fetch(path, headers=ada).body
                assert "bills" in body
                assert "a group that you may not see" in body
                assert "risk" not in body


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

            pages = [f"/schemas/t-value/versions.json?version={one}" for one in (1, 2)]
            until(lambda: fetch(pages[0]).json["data"]["users"])
            first_page, second_page = (fetch(one).json["data"] for one in pages)
            assert first_page["deprecated"] == "use version 2"
            assert [one["application"] for one in first_page["users"]["read_by"]] == ["bills"]
            assert [one["application"] for one in second_page["users"]["written_by"]] == ["shop"]
            lines = [
                (one["version"], one["writers"], one["readers"]) for one in first_page["versions"]
            ]
            assert lines == [(2, 1, 0), (1, 0, 1)]
            shown = fetch("/schemas/t-value/versions?version=1").body
            assert "Version 1 is deprecated: use version 2" in shown
            assert "still reads" in shown
            assert "still writes" in fetch("/schemas/t-value/versions").body
            assert "Deprecated" not in run("--undo")
            assert not fetch(pages[0]).json["data"]["deprecated"]
