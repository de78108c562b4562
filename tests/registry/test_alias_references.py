"""References through an alias are judged by the grants on the context that holds them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from starlette.testclient import TestClient

from headworks._registry.service.app import create_app
from headworks._registry.store import RegistryStore
from headworks._server.security.http.options import SecurityOptions, open_authenticator
from headworks._server.security.users import new_secret, write_users

pytestmark = pytest.mark.unit

GRANTS = """
[[grants]]
to = ["root"]
roles = ["admin"]

[[grants]]
to = ["bob"]
roles = ["writer"]
prefix = "pub."
"""
SECRET = {"type": "record", "name": "Secret", "fields": [{"name": "n", "type": "long"}]}
MINE = {"type": "record", "name": "Mine", "fields": [{"name": "s", "type": "Secret"}]}


def test_references_through_an_alias_are_judged_where_they_are_looked_for(tmp_path: Path) -> None:
    users, access = tmp_path / "users.txt", tmp_path / "access.toml"
    write_users(users, {name: new_secret(name) for name in ("root", "bob")})
    access.write_text(GRANTS)
    security = open_authenticator(SecurityOptions(users=users, access=access), lambda _reason: None)
    app = create_app(RegistryStore(f"sqlite:///{tmp_path}/registry.db"), authenticator=security)
    root, bob = ("root", "root"), ("bob", "bob")
    secret = {"schema": json.dumps(SECRET)}
    reference = {"name": "Secret", "subject": "pub.secret", "version": 1}
    mine = {"schema": json.dumps(MINE), "references": [reference]}
    with TestClient(app, base_url="http://localhost") as client:
        path = "/subjects/:.ctx:pub.secret/versions"
        assert client.post(path, json=secret, auth=root).status_code == 200
        alias = {"alias": ":.ctx:team"}
        assert client.put("/config/pub.alias", json=alias, auth=root).status_code == 200
        for path in ("/subjects/pub.alias/versions?format=resolved", "/subjects/pub.alias"):
            assert client.post(path, json=mine, auth=bob).status_code == 403
        path = "/compatibility/subjects/pub.alias/versions"
        assert client.post(path, json=mine, auth=bob).status_code == 403
        path = "/subjects/pub.alias/versions"
        assert client.post(path, json=mine, auth=root).status_code == 200
