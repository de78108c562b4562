"""The writer of committed offsets in ZooKeeper, which writes many in one transaction.

ZooKeeper handles some hundreds of writes a second, whatever their size. So one transaction is in
flight at a time, and the commits of all groups that arrive meanwhile share the next one.

Rules:

- A commit returns when its offsets are stored. The later of two commits of a partition wins.
- A transaction is bounded in entries and bytes. Only a larger commit is stored in parts.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from headworks._broker.coordination.zookeeper.async_session import AsyncSession
from headworks.errors import UnreachableError

_MAX_ENTRIES = 1000
_MAX_BYTES = 300_000  # ZooKeeper refuses requests beyond 1 MB
_MAX_KNOWN_PATHS = 100_000
_MAX_TRIES = 5


class OffsetWriter:
    """Writes values to nodes, and creates the nodes that are missing."""

    def __init__(self, zookeeper: AsyncSession) -> None:
        self.transactions = 0  # sent since the start
        self._zookeeper = zookeeper
        self._known_paths: dict[str, None] = {}  # nodes that exist, as far as known
        # values to write, with the future of each commit
        self._waiting: list[tuple[dict[str, bytes], asyncio.Future[None]]] = []
        self._task: asyncio.Task[None] | None = None

    async def store(self, positions: Mapping[str, bytes]) -> None:
        """Store values at paths. Raises UnreachableError if ZooKeeper does not answer."""
        if not positions:
            return
        done: asyncio.Future[None] = self._zookeeper.loop.create_future()
        self._waiting.append((dict(positions), done))
        if self._task is None or self._task.done():
            self._task = self._zookeeper.loop.create_task(self._write_all())
        await done

    def forget(self, path: str) -> None:
        """Note that the nodes at and below a path are being deleted."""
        for known in [p for p in self._known_paths if p == path or p.startswith(f"{path}/")]:
            del self._known_paths[known]

    async def stop(self) -> None:
        """Wait for the transaction in flight."""
        if self._task is not None:
            await asyncio.wait([self._task])

    async def _write_all(self) -> None:
        while self._waiting:
            together: dict[str, bytes] = {}
            futures = []
            while self._waiting and len(together) < _MAX_ENTRIES:
                positions, done = self._waiting.pop(0)
                together |= positions
                futures.append(done)
            try:
                for part in _parts(together):
                    await self._write(part)
            except Exception as error:
                for done in futures:
                    if not done.done():
                        done.set_exception(error)
            else:
                for done in futures:
                    if not done.done():
                        done.set_result(None)

    async def _write(self, positions: dict[str, bytes]) -> None:
        for _ in range(_MAX_TRIES):
            await self._find_existing([path for path in positions if path not in self._known_paths])
            transaction = self._zookeeper.client.transaction()
            for path, value in positions.items():
                if path in self._known_paths:
                    transaction.set_data(path, value)
                else:
                    transaction.create(path, value)
            results = await self._zookeeper.ask(transaction.commit_async)
            self.transactions += 1
            if not any(isinstance(result, Exception) for result in results):
                self._remember(positions)
                return
            for path in positions:  # another broker created or deleted a node: check again
                self._known_paths.pop(path, None)
        raise UnreachableError("ZooKeeper: other brokers keep changing the same offsets")

    async def _find_existing(self, unknown: list[str]) -> None:
        """Find which nodes exist, and create the parents of those that do not."""
        stats = await self._zookeeper.each(
            lambda path: self._zookeeper.ask(self._zookeeper.client.exists_async, path), unknown
        )
        missing = []
        for path, stat in zip(unknown, stats, strict=True):
            if stat is None:
                missing.append(path)
            else:
                self._known_paths[path] = None
        for parent in sorted({path.rpartition("/")[0] for path in missing}):
            await self._zookeeper.ensure(parent)

    def _remember(self, positions: Mapping[str, bytes]) -> None:
        if len(self._known_paths) + len(positions) > _MAX_KNOWN_PATHS:
            self._known_paths.clear()
        self._known_paths |= dict.fromkeys(positions)


def _parts(positions: dict[str, bytes]) -> list[dict[str, bytes]]:
    parts: list[dict[str, bytes]] = []
    size = 0
    for path, value in positions.items():
        grown = size + len(path) + len(value)
        if not parts or grown > _MAX_BYTES or len(parts[-1]) >= _MAX_ENTRIES:
            parts.append({})
            grown = len(path) + len(value)
        parts[-1][path] = value
        size = grown
    return parts
