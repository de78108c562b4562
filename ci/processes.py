"""Work on many items, shared among one process for each core.

    verdicts = map_in_forks(files, check_alone, check)

Rules: the processes take chunks of items one after the other, so that a slow core delays nobody. In
a fork, the work may not use threads, sockets, or child processes that the parent has started. An
item that a fork cannot finish is left to the parent, with every error that it raises.
"""

from __future__ import annotations

import os
import pickle
import struct
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, TypeVar

from headworks._system_calls import PROC

_Item = TypeVar("_Item")
_Result = TypeVar("_Result")

_MIN_ITEMS: Final = 200  # fewer cost less than a fork
_MAX_PROCESSES: Final = 8
_MIN_CHUNK: Final = 16  # items
_MAX_CHUNKS: Final = 512  # their numbers fit into the smallest pipe
_NUMBER: Final = struct.Struct("=I")


def map_in_forks(
    items: Sequence[_Item],
    in_fork: Callable[[_Item], _Result | None],
    here: Callable[[_Item], _Result],
    *,
    processes: int | None = None,
) -> list[_Result]:
    """Return the result of every item, in order.

    `in_fork` returns None for an item that this process must work on, by `here`. `processes` is the
    number of cores, unless given.
    """
    count = min(_cores() if processes is None else processes, _MAX_PROCESSES)
    if count < 2 or len(items) < _MIN_ITEMS or not _may_fork():
        return [here(item) for item in items]
    chunks = _Chunks(len(items))
    forks = [_Fork.start(chunks, items, in_fork) for _ in range(count - 1)]
    found: dict[int, _Result] = {}
    try:
        for at in chunks.taken():
            found[at] = here(items[at])
    finally:
        chunks.close()
        for fork in forks:
            found |= fork.results()
    return [found[at] if at in found else here(item) for at, item in enumerate(items)]


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if sys.platform == "linux" else 1


def _may_fork() -> bool:
    """Return whether no other thread may hold a lock, also not one of a C library."""
    return sys.platform == "linux" and len(os.listdir(PROC / "self/task")) == 1


class _Chunks:
    """The chunks that no process has taken yet: their numbers are in a pipe."""

    def __init__(self, items: int) -> None:
        self._items = items
        self._size = max(_MIN_CHUNK, -(-items // _MAX_CHUNKS))
        self._reading, writing = os.pipe()
        numbers = range(-(-items // self._size))
        os.write(writing, b"".join(map(_NUMBER.pack, numbers)))
        os.close(writing)

    def taken(self) -> Iterator[int]:
        """Take chunks while there are any, and yield the indexes of their items."""
        while number := os.read(self._reading, _NUMBER.size):
            start = self._size * _NUMBER.unpack(number)[0]
            yield from range(start, min(start + self._size, self._items))

    def close(self) -> None:
        """Take all that is left, so that no fork begins another one."""
        while os.read(self._reading, _NUMBER.size * _MAX_CHUNKS):
            pass
        os.close(self._reading)


@dataclass(frozen=True, slots=True)
class _Fork:
    """A fork of this process, and the pipe for its results."""

    pid: int
    reading: int

    @classmethod
    def start(
        cls, chunks: _Chunks, items: Sequence[_Item], work: Callable[[_Item], _Result | None]
    ) -> _Fork:
        reading, writing = os.pipe()
        pid = os.fork()
        if pid:
            os.close(writing)
            return cls(pid, reading)
        try:
            results = ((at, work(items[at])) for at in chunks.taken())
            found = {at: one for at, one in results if one is not None}
            with open(writing, "wb") as pipe:
                pickle.dump(found, pipe, pickle.HIGHEST_PROTOCOL)
        finally:
            os._exit(0)  # without the exit handlers and the buffers of the parent

    def results(self) -> dict[int, _Result]:
        """Wait for the end of the fork; return its results, none if it failed."""
        with open(self.reading, "rb") as pipe:
            content = pipe.read()
        os.waitpid(self.pid, 0)
        try:
            found: dict[int, _Result] = pickle.loads(content)
        except (EOFError, pickle.UnpicklingError):
            return {}
        return found
