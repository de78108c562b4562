"""The common measure: a server that takes messages, stores them in files, and returns them.

Rules: a contender starts with its makers' settings, except for those that the experiment names. Its
client is native. Each queue is used once, so that no run meets another's data.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol, TypeVar

from bench.broker.clients import Answer
from bench.frame import Bench
from bench.processes import Spent

SIZE = 200  # bytes of a message, as in the paper


class Contender(Protocol):
    """One server and its client."""

    name: str
    client: str
    batches: tuple[str, ...]  # the names of the batch sizes that its client has
    rereads: bool  # whether what was read can be read again
    warming: int  # messages that its client sends besides, untimed, because it starts slowly

    def start(self, folder: Path) -> None:
        """Serve, data in `folder`. UsageError, RefusedError or UnreachableError if it cannot."""

    def stop(self) -> None:
        """End; does nothing if it is not running."""

    def spent(self) -> Spent:
        """Return the CPU seconds and the memory that the server has used so far."""

    def produce(self, queue: str, count: int, batch: str) -> Answer:
        """Send `count` messages to a new queue."""

    def consume(self, queue: str, count: int) -> Answer:
        """Read `count` messages from the start of the queue."""

    def stored(self, queue: str) -> int:
        """Bytes in the files of the queue, or of all queues."""

    def drop(self, queue: str) -> None:
        """Forget the queue, where that is needed for the next not to be slower."""


_Any = TypeVar("_Any", bound=Contender)


@contextmanager
def started(bench: Bench, contender: _Any) -> Iterator[_Any]:
    """The contender, running, in a folder of its own."""
    bench.say(f"starting {contender.name}")
    contender.start(bench.folder / contender.name.replace(" ", "-"))
    try:
        yield contender
    finally:
        contender.stop()


def stored(folder: Path) -> int:
    """Bytes that the files below `folder` take; holes in sparse files take none."""
    total = 0
    for path, _, names in os.walk(folder):
        for name in names:
            try:
                found = os.stat(os.path.join(path, name))
            except FileNotFoundError:
                continue
            total += min(found.st_size, found.st_blocks * 512)
    return total
