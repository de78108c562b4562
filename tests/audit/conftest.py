"""A broker and a registry of the audit's own: these tests write nonsense to the audit topic."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from headworks._cli.stack.stack import RunningStack, running_stack


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningStack]:
    with running_stack(tmp_path_factory.mktemp("stack")) as running:
        yield running
