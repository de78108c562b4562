"""Comparisons that take long: they keep no lookup and no unchanged content waiting."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from headworks._registry.model.schema_limits import SchemaLimits
from headworks._registry.operations import registrar
from headworks._registry.operations.compatibility_check import check_compatibility
from headworks._registry.operations.parsed_schemas import SchemaCache
from headworks._registry.operations.registrar import ProposedSchema, Registrar
from headworks._registry.store import RegistryStore
from tests.registry.rest import record, text_of
from tests.waiting import PATIENCE, until

pytestmark = pytest.mark.unit

KNOWN = ProposedSchema(text_of(record("a:int=0")))
NEW = ProposedSchema(text_of(record("a:int=0", "b:int=0")))


@pytest.mark.parametrize("dry_run", [False, True])
def test_known_content_does_not_wait_for_comparisons(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, dry_run: bool
) -> None:
    store = RegistryStore(f"sqlite:///{tmp_path / 'registry.db'}")
    asked = Registrar(store, SchemaCache(), SchemaLimits())
    made = asked.register("s", KNOWN, who="t")
    ends = threading.Event()
    begun: list[object] = []

    def slow(*given: Any) -> Any:
        begun.append(given)
        assert ends.wait(2 * PATIENCE)
        return check_compatibility(*given)

    def try_it() -> object:
        if dry_run:
            return asked.register("s", NEW, who="t", dry_run=True)
        return asked.check("s", NEW, None)

    monkeypatch.setattr(registrar, "check_compatibility", slow)
    with ThreadPoolExecutor(4) as pool:
        try:
            tries = [pool.submit(try_it) for _ in range(2)]
            until(lambda: len(begun) == len(tries))
            found = pool.submit(asked.look_up, "s", KNOWN)
            again = pool.submit(asked.register, "s", KNOWN, who="t")
            assert found.result(PATIENCE)["version"] == 1
            assert again.result(PATIENCE) == made
            assert not any(one.done() for one in tries)
        finally:
            ends.set()
        assert all(one.result(PATIENCE) for one in tries)
    store.close()
