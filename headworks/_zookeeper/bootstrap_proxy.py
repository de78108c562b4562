"""A loopback address that leads to a living broker, for long-lived Kafka clients.

A Kafka client knows its bootstrap brokers and those that they report. If all of them are replaced,
it finds no broker any more. This address stays: each connection to it is forwarded to a broker that
is registered in ZooKeeper at that moment, and that broker reports the others.

Rules:

- It carries the bootstrap requests of a client only. Other traffic goes to the addresses that the
  brokers report.
- It forwards bytes unchanged, listens on loopback only, and runs in one thread with at most
  `_MAX_CONNECTIONS` connections.
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

_CHUNK_BYTES = 1 << 16
_MAX_CONNECTIONS = 16
_CONNECT_SECONDS = 5.0


class BootstrapProxy:
    """Forwards to the brokers registered at `zookeeper`, until `close`.

    Raises UnreachableError if ZooKeeper does not answer, or no broker is registered there.
    """

    def __init__(self, zookeeper: str) -> None:
        self._session = open_session(zookeeper)
        self._brokers: list[BrokerNode] = []
        self._watch: BrokerWatch | None = None
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name="headworks-bootstrap", daemon=True)
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
                asyncio.start_server(self._forward, "127.0.0.1", 0)
            )
        except BaseException:
            self._loop.close()
            self._session.close()
            raise
        self._watch = BrokerWatch(self._session, self._follow)
        self._thread.start()

    @property
    def address(self) -> str:
        """HOST:PORT of the proxy."""
        host, port = self._server.sockets[0].getsockname()[:2]
        return f"{host}:{port}"

    @property
    def brokers(self) -> list[str]:
        """HOST:PORT of each broker that was alive by the last report of ZooKeeper."""
        return [broker.address for broker in self._brokers]

    def close(self) -> None:
        """Stop forwarding. A second call does nothing, and neither does one in a forked child."""
        if self._watch is not None and os.getpid() == self._process:
            self._watch.stop()
            self._watch = None
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
            self._session.close()

    def _follow(self, brokers: Mapping[int, BrokerNode]) -> None:
        if brokers:  # without any, keep the last ones: they may return
            self._brokers = list(brokers.values())

    def _run(self) -> None:
        try:
            self._loop.run_forever()
        finally:
            self._loop.run_until_complete(self._end())
            self._loop.close()

    async def _end(self) -> None:
        self._server.close()
        forwarding = asyncio.all_tasks() - {asyncio.current_task()}
        for task in forwarding:
            task.cancel()
        await asyncio.gather(*forwarding, return_exceptions=True)

    async def _forward(self, inward: asyncio.StreamReader, outward: asyncio.StreamWriter) -> None:
        """Forward one connection to one broker, until either side ends it."""
        self._open += 1
        try:
            if self._open > _MAX_CONNECTIONS:
                return
            broker = random.choice(self._brokers)
            async with asyncio.timeout(_CONNECT_SECONDS):
                reader, writer = await asyncio.open_connection(broker.host, broker.port)
            sides = [
                asyncio.ensure_future(_copy(inward, writer)),
                asyncio.ensure_future(_copy(reader, outward)),
            ]
            try:
                await asyncio.wait(sides, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for side in sides:
                    side.cancel()
                await asyncio.gather(*sides, return_exceptions=True)
                writer.close()
        except (OSError, TimeoutError):
            return  # the client retries, perhaps with another broker
        finally:
            self._open -= 1
            outward.close()


async def _copy(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
    with contextlib.suppress(ConnectionError):
        while data := await source.read(_CHUNK_BYTES):
            sink.write(data)
            await sink.drain()
