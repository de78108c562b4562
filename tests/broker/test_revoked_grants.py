"""A decision ends together with the grants that it was made by."""

from __future__ import annotations

from pathlib import Path

import pytest

from headworks._broker.handlers import REQUIRED_ROLES
from headworks._broker.handlers.client import Authorizer
from headworks._kafka.protocol.apis import ApiKey
from headworks._server.security import Access, Principal
from headworks._server.security.grants import read_grants
from headworks._server.security.reloaded_file import ReloadedFile

pytestmark = pytest.mark.unit

NARROW = '[[grants]]\nto = ["ann"]\nroles = ["reader"]\nprefix = "shop."\n'
WIDE = '[[grants]]\nto = ["ann"]\nroles = ["reader"]\n'


@pytest.mark.parametrize("meanwhile", [WIDE, "not TOML"])
def test_a_decision_by_grants_that_were_there_for_a_moment_does_not_stay(
    tmp_path: Path, meanwhile: str
) -> None:
    file, now = tmp_path / "access.toml", [0.0]
    file.write_text(NARROW)
    authority = Authorizer(
        Access(ReloadedFile(file, read_grants, clock=lambda: now[0])), REQUIRED_ROLES
    )
    may = authority.permissions(Principal("ann"))
    assert may is not None

    file.write_text(meanwhile)
    now[0] += 1.0
    asked = {name: may.topic(ApiKey.FETCH, name) for name in ("shop.orders", "pay.cards")}
    assert asked["pay.cards"] == (meanwhile == WIDE)

    file.write_text(NARROW)
    now[0] += 1.0
    authority.refresh()
    assert may.topic(ApiKey.FETCH, "shop.orders")
    assert not may.topic(ApiKey.FETCH, "pay.cards")
