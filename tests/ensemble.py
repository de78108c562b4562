"""Real ZooKeepers for tests: the product's embedded ones, in a test's own folder.

with ensemble(tmp_path) as zookeeper:            # or size=3
    with open_session(zookeeper.address) as session: ...
    zookeeper.servers[0].kill() / start() / pause() / resume() / stop()
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from headworks._cli.stack.embedded_zookeeper import Ensemble
from headworks.errors import UnreachableError

__all__ = ["ensemble"]

_TRIES = 3


@contextmanager
def ensemble(folder: Path, size: int = 1) -> Iterator[Ensemble]:
    """A running ensemble of `size` servers; started again if somebody took one of its ports."""
    for number in range(_TRIES):
        started = Ensemble(folder / f"zookeeper-{number}", size)
        try:
            started.start()
            break
        except UnreachableError:
            started.stop()
            if number == _TRIES - 1:
                raise
    try:
        yield started
    finally:
        started.stop()
