"""The versions of a subject are read once, and again if the registry has others."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from headworks._console.sources.histories import HistoryReader
from headworks._server import child_process
from headworks.registry_client import RegistryClient
from tests.registry.conftest import start_registry

pytestmark = pytest.mark.e2e

_SUBJECT = "t-value"


class Counted(RegistryClient):
    """A client that counts how often it listed versions."""

    listings = 0

    def list_versions(self, prefix: str = "", **more: Any) -> Any:
        self.listings += 1
        return super().list_versions(prefix, **more)


@pytest.fixture
def registry(tmp_path: Path) -> Iterator[child_process.Service]:
    with start_registry(tmp_path) as running:
        yield running


def _text(count: int) -> str:
    fields = ",".join(f'{{"name": "f{n}", "type": "int", "default": 0}}' for n in range(count))
    return f'{{"type": "record", "name": "T", "fields": [{fields}]}}'


def test_versions_are_read_once_and_again_if_there_are_others(
    registry: child_process.Service,
) -> None:
    client = Counted(registry.url)
    read = HistoryReader(client)

    def numbers(**more: bool) -> list[int]:
        found = read(_SUBJECT, **more)
        assert found == [
            one
            for one in RegistryClient(registry.url).list_versions(_SUBJECT, **more)
            if one.subject == _SUBJECT
        ]
        return [one.version for one in found]

    assert (numbers(), client.listings) == ([], 0)
    for count in (1, 2, 3):
        client.register(_SUBJECT, _text(count))
    client.register(f"{_SUBJECT}-2", _text(1))
    for _ in range(3):
        assert (numbers(), client.listings) == ([1, 2, 3], 1)
        assert (numbers(deleted=True), client.listings) == ([1, 2, 3], 1)
    client.ask("DELETE", f"/subjects/{_SUBJECT}/versions/2")
    assert (numbers(), numbers(deleted=True), client.listings) == ([1, 3], [1, 2, 3], 1)
    client.register(_SUBJECT, _text(4))
    assert (numbers(), client.listings) == ([1, 3, 4], 2)
    client.ask("DELETE", f"/subjects/{_SUBJECT}")
    client.ask("DELETE", f"/subjects/{_SUBJECT}?permanent=true")
    assert numbers() == []
    client.register(_SUBJECT, _text(9))
    assert (numbers(), client.listings) == ([1], 3)


def test_a_subject_under_another_name_has_no_versions(registry: child_process.Service) -> None:
    client = Counted(registry.url)
    client.register(_SUBJECT, _text(1))
    client.ask("PUT", "/config/alias-value", {"alias": _SUBJECT})
    assert HistoryReader(client)("alias-value") == []
