"""Avro Java as the oracle, started once."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.headworks.compatibility import oracle as avro_java


@pytest.fixture(scope="session")
def oracle(tmp_path_factory: pytest.TempPathFactory) -> Iterator[avro_java.Oracle]:
    """Avro Java 1.12.1, asked line by line."""
    yield from avro_java.start(tmp_path_factory.mktemp("oracle"))
