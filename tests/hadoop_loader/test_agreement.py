"""Projection as Avro Java does it; for longer: `python -m tests.soak projection`."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.hadoop_loader.agreement import agree
from tests.headworks.compatibility import oracle as avro_java

pytestmark = pytest.mark.contract


@pytest.fixture(scope="module")
def oracle(tmp_path_factory: pytest.TempPathFactory) -> Iterator[avro_java.Oracle]:
    yield from avro_java.start(tmp_path_factory.mktemp("oracle"))


def test_projects_as_java_does(oracle: avro_java.Oracle) -> None:
    report = agree(oracle, 11, pairs=100)
    assert report.wrong == ()
    assert report.data == 800
