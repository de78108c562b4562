"""An address on loopback that leads to a living broker, whichever lives: for clients that stay.

A Kafka client knows the brokers it began with and those they told it of. When all of these are gone
and others have come, nobody is left to tell. This address stays: behind it is a broker that is
registered in ZooKeeper at that moment, and from it the client learns of the others.

Rules: it carries what a client asks when it begins, never its traffic, which goes to the addresses
that brokers tell. It changes nothing on the way. It listens on loopback only, takes a few
connections at once, and lives in one thread.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import threading
from collections.abc import Mapping

from headworks._zookeeper.living_brokers import BrokerWatch, live_brokers
from headworks._zookeeper.nodes import BrokerNode
from headworks._zookeeper.session import open_session
from headworks.errors import UnreachableError

__all__ = ["BootstrapProxy"]

_CHUNK_BYTES = 1 << 16
_MAX_CONNECTIONS = 16
_CONNECT_SECONDS = 5.0


class BootstrapProxy:
    """Leads to the brokers registered at `zookeeper`, until `close`.

    UnreachableError if ZooKeeper does not answer, or nobody is registered there.
    """

    def __init__(self, zookeeper: str) -> None:
        self._session = open_session(zookeeper)
        self._brokers: list[BrokerNode] = []
        self._watch: BrokerWatch | None = None
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name="headworks-doorway", daemon=True)
        self._process = os.getpid()
        self._open = 0
        try:
            self._follow(live_brokers(self._session))
            if not self._brokers:
                raise UnreachableError(
                    f"no broker is registered in the ZooKeeper at {zookeeper}",
                    fix="start one with `headworks broker start --zookeeper`, or correct the"
                    " address",
                )
            self._server = self._loop.run_until_complete(
                asyncio.start_server(self._lead, "127.0.0.1", 0)
            )
        except BaseException:
            self._loop.close()
            self._session.close()
            raise
        self._watch = BrokerWatch(self._session, self._follow)
        self._thread.start()

    @property
    def address(self) -> str:
        """HOST:PORT of the doorway."""
        host, port = self._server.sockets[0].getsockname()[:2]
        return f"{host}:{port}"

    @property
    def brokers(self) -> list[str]:
        """HOST:PORT of each broker that lived when ZooKeeper told last."""
        return [broker.address for broker in self._brokers]

    def close(self) -> None:
        """Lead nowhere any more; safe to call twice. To a forked child it is the parent's."""
        if self._watch is not None and os.getpid() == self._process:
            self._watch.stop()
            self._watch = None
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
            self._session.close()

    def _follow(self, brokers: Mapping[int, BrokerNode]) -> None:
        if brokers:  # with nobody there, those of before are as good a guess as any
            self._brokers = list(brokers.values())

    def _run(self) -> None:
        try:
            self._loop.run_forever()
        finally:
            self._loop.run_until_complete(self._end())
            self._loop.close()

    async def _end(self) -> None:
        self._server.close()
        carrying = asyncio.all_tasks() - {asyncio.current_task()}
        for task in carrying:
            task.cancel()
        await asyncio.gather(*carrying, return_exceptions=True)

    async def _lead(self, inward: asyncio.StreamReader, outward: asyncio.StreamWriter) -> None:
        """Carry one connection to one broker, and end it when either side does."""
        self._open += 1
        try:
            if self._open > _MAX_CONNECTIONS:
                return
            broker = random.choice(self._brokers)
            async with asyncio.timeout(_CONNECT_SECONDS):
                reader, writer = await asyncio.open_connection(broker.host, broker.port)
            sides = [
                asyncio.ensure_future(_carry(inward, writer)),
                asyncio.ensure_future(_carry(reader, outward)),
            ]
            try:
                await asyncio.wait(sides, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for side in sides:
                    side.cancel()
                await asyncio.gather(*sides, return_exceptions=True)
                writer.close()
        except (OSError, TimeoutError):
            return  # the client tries again, and perhaps another broker
        finally:
            self._open -= 1
            outward.close()


async def _carry(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
    with contextlib.suppress(ConnectionError):
        while data := await source.read(_CHUNK_BYTES):
            sink.write(data)
            await sink.drain()
